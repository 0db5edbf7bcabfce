"""Commands on the console."""
