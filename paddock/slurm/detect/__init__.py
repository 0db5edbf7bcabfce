"""Machine as Slurm needs it: platform, GPUs, CPUs and memory."""
