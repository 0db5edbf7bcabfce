"""Jobs: methods, their resources, submission and results."""
