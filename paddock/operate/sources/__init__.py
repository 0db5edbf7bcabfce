"""Readers of AWS, GitHub and this machine's programs: data, or an Unavailable that says why there is none."""
