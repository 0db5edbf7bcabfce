"""Fleets of others: what their files say of runners, as the keys of a stack file."""
