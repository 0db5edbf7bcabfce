"""Monitoring of a fleet as typed data: metrics that are exported, rules over them, runbooks of the alerts."""
