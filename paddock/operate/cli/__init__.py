"""The commands of operation, without Invoke."""
