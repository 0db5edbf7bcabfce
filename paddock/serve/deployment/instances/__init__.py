"""Instances: what is declared, where it stands, and the applications of Ray Serve that follow from it."""
