"""Results kept per machine and software, and whether a new one is a regression."""
