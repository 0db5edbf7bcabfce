"""Measurement of a load: latencies, throughput over the steady window, goodput and whether the run can be trusted."""
