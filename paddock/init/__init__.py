"""First steps: a stack file, the GitHub App that registers runners, and the rights in AWS that `pulumi up` needs."""
