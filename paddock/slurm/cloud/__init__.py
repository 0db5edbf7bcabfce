"""Slurm on AWS: configuration of AWS ParallelCluster, which starts and stops the nodes."""
