"""Helpers that tests of several packages share: sample fleets, generated ones, and queries on a graph."""
