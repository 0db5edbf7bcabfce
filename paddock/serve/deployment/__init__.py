"""Deployment: replicas on Ray Serve, and the scheduler that places and re-places them."""
