"""The fleet applied on one machine: real Kubernetes and a real engine, stand-ins for the rest, on loopback only."""
