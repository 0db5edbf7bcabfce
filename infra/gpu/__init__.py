"""GPU nodes: pools, the device plugin, and what makes them come and go."""
