"""Compatibility: CUDA on drivers and GPUs, images on Kubernetes, ARC beside GitHub; and what ages."""
