"""Programs that work one device, each in a process of its own: `python -m paddock.smoke.workers NAME`.

A program gets its parameters as JSON in its only argument and prints one JSON document. It measures and compares;
what a number means is for the stages. On GPUs it works by torch, on the CPU by numpy.
"""
