"""Refresh of the facts that AWS can answer: the queries and the merge. Reading a fact never imports this."""
