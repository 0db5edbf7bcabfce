"""What a booted node has left for jobs: capacity, reserves and DaemonSets. Pure arithmetic."""
