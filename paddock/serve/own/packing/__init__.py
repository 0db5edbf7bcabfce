"""Quantisation: int8 and int4 weights, their Linear on each kind of device, and what they cost in quality."""
