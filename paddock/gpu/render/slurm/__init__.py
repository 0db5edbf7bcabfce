"""Slurm's configuration of this machine: the node and its generic resources."""
