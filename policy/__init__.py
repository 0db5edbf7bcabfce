"""The rules of `paddock.plan` as a Pulumi policy pack."""
