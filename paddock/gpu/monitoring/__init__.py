"""GPUs over time: samples, their summary and insights, and metrics for Prometheus.

`sampling.METRICS` lists what `gpu.monitor` samples, `metrics.METRICS` what `gpu.monitor --export` publishes: a new
metric is one line in each. Limits live in `paddock.gpu.health.thresholds`.
"""
