"""Implementations of the build tasks, without Invoke."""
