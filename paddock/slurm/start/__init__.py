"""Start of a node in its container: GPUs detected again, files written for them, daemons started and watched."""
