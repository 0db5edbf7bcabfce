"""Load on a server: requests by a schedule or by a number of users, and what the server's answers were worth.

`arrivals` and `workload` say what is sent and when, `client` sends it from a process of its own, `stream` reads the
answers, `measure` adds them up, and `run` holds them together.
"""
