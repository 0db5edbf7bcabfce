"""Simulators of what a laptop lacks: nodes, boots, the autoscaler, spot capacity, ARC and runner pods."""
