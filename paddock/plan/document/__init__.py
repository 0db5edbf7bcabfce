"""The plan as data: its model, how it is made from a plan, and how a saved one is read. It renders nothing."""
