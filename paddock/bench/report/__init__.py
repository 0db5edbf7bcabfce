"""Reports: the result document, its text and its page with plots."""
