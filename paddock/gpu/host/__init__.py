"""The machine around the GPUs: processes, kernel log, instance metadata, visibility variables. No driver is read."""
