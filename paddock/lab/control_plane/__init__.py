"""A real Kubernetes control plane on loopback: its programs, certificates, state and daemons. It knows no fleet."""
