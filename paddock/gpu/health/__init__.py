"""Health of GPUs: the check, its rules and thresholds, Xids, and CUDA compatibility.

The rules are pure functions of an inventory; `check` reads the machine. Nothing here samples over time.
"""
