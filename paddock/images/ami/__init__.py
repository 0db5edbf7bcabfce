"""GPU machine images: built by EC2 Image Builder, listed, pinned in stack files and cleared away."""
