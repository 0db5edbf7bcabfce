"""Health of GPUs: rules, thresholds, Xids, CUDA compatibility, reset."""
