"""Engines that others keep: each an adapter from what is to be served to the command line of a server."""
