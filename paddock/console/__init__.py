"""Console, which talks to a person: commands and their parameters, reports, tables, progress, questions."""
