"""Slurm on one machine: detection, validation, configuration, start, jobs and diagnosis."""
