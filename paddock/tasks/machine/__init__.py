"""Tasks on the machine that they run on: its GPUs, its tests, its Slurm."""
