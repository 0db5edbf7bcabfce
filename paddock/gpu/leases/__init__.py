"""Leases of GPUs: request, eligibility, ranking, selection, store, manager, and programs that run on a lease.

Choosing is pure (request, eligibility, ranking, selection); only the store writes files.
"""
