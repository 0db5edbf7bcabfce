"""Renderers of a plan's document: terminal, Markdown, pull request, HTML, Terraform. They compute no fact."""
