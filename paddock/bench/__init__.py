"""Inference benchmark: how fast a machine serves a model, against its physical limit and in money.

The engines, how they are measured, load on a server, resource modes and comparisons with earlier results.
"""
