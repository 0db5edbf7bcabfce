"""Cost of a fleet in days gone by, beside the plan's estimate."""
