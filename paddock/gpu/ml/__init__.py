"""Environments in which a framework sees the leased GPUs and no others."""
