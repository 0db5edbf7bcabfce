"""Prometheus rules of a fleet: when GPUs, nodes, runners and capacity need a person."""
