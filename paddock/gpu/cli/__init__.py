"""What `inv gpu.*` prints, without Invoke. An action's work is in `actions`."""
