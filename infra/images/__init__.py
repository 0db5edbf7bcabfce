"""Registries and machine images, and who may push them."""
