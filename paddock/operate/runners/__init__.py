"""Runners on day two: drained, given back, replaced where they are stuck, and their controller upgraded."""
