"""Chain from GitHub's queue to a job that runs: each link judges a snapshot, and the first broken one is named."""
