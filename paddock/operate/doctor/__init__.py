"""The doctor: what `pulumi up` of a stack would meet in an account, read before it is run."""
