"""The CUDA programs of the suite: what they are compiled for, how they are built, and what is known of a built one."""
