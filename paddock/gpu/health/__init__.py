"""Health of GPUs: the check, its rules and thresholds, Xids, CUDA compatibility and reset.

The rules are pure functions of an inventory; `check` and `reset` read the machine. Nothing here samples over time.
"""
