"""Client process: it sends requests and notes when bytes came. Others read what the bytes mean."""
