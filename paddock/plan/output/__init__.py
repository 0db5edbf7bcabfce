"""Renderers of a plan's document: terminal, Markdown, pull request, HTML. They compute no fact."""
