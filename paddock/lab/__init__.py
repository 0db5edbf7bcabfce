"""The fleet applied on one machine: a real control plane and a real engine, stand-ins for clouds, GitHub and nodes.

Everything listens on loopback, and nothing here reaches another machine. A new fault belongs to `providers.faults` (the
cloud), `github.faults` (GitHub) or `simulators.spot` (capacity).
"""
