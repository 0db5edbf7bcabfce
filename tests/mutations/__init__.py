"""Proof that the suite bites: small faults are put into rooms, and the rooms' unit tests must find them.

python -m tests.mutations --seed 1 --each 8          every room's eight mutants of seed 1
python -m tests.mutations --room plan --list         which ones those would be
"""
