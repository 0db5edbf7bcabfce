"""Jobs whose node was reclaimed: found, tied to that node by evidence, and run again at most twice."""
