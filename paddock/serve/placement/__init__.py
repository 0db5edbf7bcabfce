"""Placement, pure: devices, a model and a policy become a plan, or the reason why there is none."""
