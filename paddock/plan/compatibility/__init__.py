"""Compatibility: CUDA on drivers and GPUs, images on Kubernetes, ARC with GitHub; and what ages."""
