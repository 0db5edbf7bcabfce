"""Pulumi's CLI on one stack: what the stack holds, runs that change it, and what a run says of itself."""
