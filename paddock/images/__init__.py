"""Runner images and GPU machine images: built, tested, pushed and pinned, each by one command."""
