"""Metrics that a fleet's exporters publish, with the labels that rules and dashboards may use."""
