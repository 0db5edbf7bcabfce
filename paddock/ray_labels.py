"""Labels of Ray's nodes: the fleet's program writes them, and serving places what it runs by them."""

from __future__ import annotations

BACKEND, AGENT, MODEL, POOL = "paddock.backend", "paddock.agent", "paddock.model", "paddock.pool"
HEAD = "head"
"""Agent of the node that the cluster starts with, which no other one may be called."""
