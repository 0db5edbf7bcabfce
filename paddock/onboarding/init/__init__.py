"""A new stack file from a few answers."""
