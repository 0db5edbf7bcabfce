"""Placement, pure: devices, a model and a policy become a plan, or the reason why nothing holds it."""
