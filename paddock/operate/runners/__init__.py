"""Runners on day two: drained, given back, and what is stuck made anew."""
