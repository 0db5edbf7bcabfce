"""Slurm's own programs, on this machine or in the node's container, and what they say."""
