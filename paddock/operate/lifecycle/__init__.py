"""Life of a fleet after its first day: Actions Runner Controller upgraded, and all of it removed."""
