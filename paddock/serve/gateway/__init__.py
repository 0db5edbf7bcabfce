"""Gateway: OpenAI-compatible HTTP before the replicas."""
