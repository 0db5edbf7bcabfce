"""Runs: the worker process that holds a model, the loop that measures it, and the run of a whole benchmark."""
