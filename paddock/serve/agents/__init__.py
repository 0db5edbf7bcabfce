"""Agents: the devices of a machine, and why one of its backends does not work."""
