"""Commands of the benchmark: flags, progress, output and exit codes."""
