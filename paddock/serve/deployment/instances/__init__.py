"""Instances: what is declared, its state, and the actors of the replicas that follow from it."""
