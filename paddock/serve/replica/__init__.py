"""Replica: one engine's server as a child process on an agent, watched and started again."""
