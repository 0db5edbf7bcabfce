"""Proof that a GPU job can run in a running fleet: nodes, a GPU in a pod, torch on it, a workflow's run."""
