"""Checks between the parts of a fleet."""
