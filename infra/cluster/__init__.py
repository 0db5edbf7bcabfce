"""The EKS control plane, its nodes without GPUs and its add-ons."""
