"""What tests of several rooms share: sample fleets, made-up ones, and ways to look at a graph."""
