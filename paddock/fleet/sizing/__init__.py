"""Arithmetic of a booted node: capacity, reserves and DaemonSets, and the share of it that a job gets."""
