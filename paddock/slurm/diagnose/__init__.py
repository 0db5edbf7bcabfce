"""Diagnosis of a node: every link from the driver to Slurm's node, and the first that is broken."""
