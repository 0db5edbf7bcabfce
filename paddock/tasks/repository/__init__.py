"""Tasks that maintain this repository: checks, documents, facts."""
