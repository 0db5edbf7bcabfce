"""What an image is made of, before any engine is asked: base, context, labels, wheels. Nothing is built here."""
