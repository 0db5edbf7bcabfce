"""Cost of a fleet in past days, compared with the plan's estimate."""
