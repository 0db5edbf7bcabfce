"""The verdict: results of stages, how they add up, and how they are written."""
