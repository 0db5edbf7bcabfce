"""Workflows of steps: the model, its tasks, the engine and the journal."""
