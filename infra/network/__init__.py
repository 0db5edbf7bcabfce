"""VPC, and network policies of what runs in the cluster."""
