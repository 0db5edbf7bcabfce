"""Operation of a fleet: reading AWS, GitHub and this machine, and saying what is wrong with its fix."""
