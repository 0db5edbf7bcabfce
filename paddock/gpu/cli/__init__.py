"""Output of `inv gpu.*`, without Invoke: any action, and the commands that are no actions."""
