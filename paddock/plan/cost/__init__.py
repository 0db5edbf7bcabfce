"""Cost of a fleet: amounts with sources, fixed parts, nodes, idle time, cheaper instance types."""
