"""What the build tasks print and write, without Invoke."""
