"""Rights in AWS that `pulumi up` of a stack needs, from the resources that its program declares."""
