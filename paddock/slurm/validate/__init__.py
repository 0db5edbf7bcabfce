"""Proof that Docker passes the machine's GPUs to a container, or the link that is missing."""
