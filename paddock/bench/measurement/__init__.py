"""Measurement: statistics of samples, the roofline, bandwidth, energy, money and the environment of a run."""
