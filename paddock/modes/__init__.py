"""Resource modes: how much of a machine inference may take, and how it is held to that."""
