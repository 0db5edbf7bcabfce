"""Models: their weights, layers, cache and formats, read from its files, before anything is loaded."""
