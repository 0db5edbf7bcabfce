"""GPU GitHub-runner fleets on AWS EKS: one typed model, planned, priced, tested and measured."""

__version__ = "0.1.0"
