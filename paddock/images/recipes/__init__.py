"""Contents of an image, defined without an engine: base, context, labels, wheels. Nothing is built here."""
