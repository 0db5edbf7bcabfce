"""Simulators of what one machine lacks: nodes, boots, the autoscaler, spot capacity, ARC and runner pods."""
