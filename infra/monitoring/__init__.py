"""GPU metrics and the alerts on them."""
