"""AWS: one way to ask it, and every refusal as a sentence."""
