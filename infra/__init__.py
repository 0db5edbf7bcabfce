"""The Pulumi program: a fleet as AWS and Kubernetes resources."""
