"""Commands of serving."""
