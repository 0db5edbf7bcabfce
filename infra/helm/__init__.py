"""Upstream charts: which, from where, and their releases."""
