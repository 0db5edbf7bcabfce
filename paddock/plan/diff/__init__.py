"""The difference of two plans: changes, replacements, and the impact on what runs."""
