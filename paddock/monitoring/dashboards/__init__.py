"""Grafana dashboards of a fleet, generated from typed panels: none is drawn by hand."""
