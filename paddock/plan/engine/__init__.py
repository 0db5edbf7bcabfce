"""The fleet's Pulumi program run in-process, and the graph of what it declares. It judges nothing."""
