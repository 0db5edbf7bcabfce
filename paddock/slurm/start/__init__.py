"""Start of a node in its container: GPUs detected anew, files written for them, daemons started and watched."""
