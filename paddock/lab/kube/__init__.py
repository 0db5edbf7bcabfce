"""A small Kubernetes client, and the requests and constraints of pods. It knows no fleet and no lab."""
