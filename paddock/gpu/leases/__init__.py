"""Leases of GPUs: request, eligibility, ranking, selection, store and manager."""
