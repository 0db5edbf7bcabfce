"""The lab's stack: the real Pulumi engine applied to the fleet's program, with charts and recovery after a kill."""
