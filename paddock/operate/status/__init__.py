"""State of a fleet now, computed from one snapshot."""
