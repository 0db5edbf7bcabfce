"""The configuration guide and the JSON Schema, generated from the model."""
