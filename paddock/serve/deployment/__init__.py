"""Deployment: the scheduler that places models and follows their replicas, and the gateway, as actors of Ray."""
