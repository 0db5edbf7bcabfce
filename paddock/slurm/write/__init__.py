"""Files of Slurm and Compose, and their safe replacement."""
