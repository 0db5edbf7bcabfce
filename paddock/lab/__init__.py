"""The fleet applied on one machine: a real control plane and a real engine, stand-ins for clouds, GitHub and nodes.

Everything listens on loopback, and nothing here reaches another machine. A new fault belongs to `providers.faults` (the
cloud) or `github.faults` (GitHub).
"""

BOOT_SECONDS = 3.0
"""How long a simulated node takes to boot."""
JOB_SECONDS = 5.0
"""How long the job of the demonstration works."""
