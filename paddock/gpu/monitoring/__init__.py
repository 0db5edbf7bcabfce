"""GPUs over time: samples, their summary and insights, and metrics for Prometheus."""
