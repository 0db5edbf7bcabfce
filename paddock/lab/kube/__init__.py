"""A small Kubernetes client and what pods ask for. It knows no fleet."""
