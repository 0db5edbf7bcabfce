"""Links of the chain: pure functions of a snapshot and of what is walked along."""
