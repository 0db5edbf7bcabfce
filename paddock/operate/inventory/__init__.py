"""Inventory of what an account, a cluster and GitHub have already, for doctor, destroy, status, why."""
