"""Streamed answers: server-sent events, and the tokens in them."""
