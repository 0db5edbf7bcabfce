"""The GitHub App that runners register with: its form filled in, its permissions with reasons, a look at its key."""
