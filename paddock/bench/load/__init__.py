"""Load on a server: requests by a schedule or by a number of users, and what the server's answers were worth.

`arrivals` and `workload` say what is sent and when, `client` sends it from a process of its own, `answer` has what
came, `measure` adds it up, and `run` holds them together.
"""
