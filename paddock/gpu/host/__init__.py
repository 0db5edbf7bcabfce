"""The machine around the GPUs: processes, kernel log, instance metadata, visibility. It reads no driver."""
