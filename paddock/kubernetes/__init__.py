"""A small client of the Kubernetes API, and the requests and constraints of pods. It knows no fleet and no lab."""
