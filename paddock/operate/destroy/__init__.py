"""Removal of a fleet: what goes, in which order, and what stays."""
