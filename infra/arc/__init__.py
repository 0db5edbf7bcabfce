"""Actions Runner Controller: runners, their pods, and what those may do."""
