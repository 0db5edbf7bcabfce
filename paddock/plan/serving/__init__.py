"""Served models in a plan: whether their models are known, fit the memory of GPUs and the nodes of pools."""
