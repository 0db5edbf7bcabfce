"""Machine as Slurm needs it: platform, GPUs, processors and memory."""
