"""Hooks around a job in the pod that runs it: the check before it, the sampler next to it, and the report after it.

`started` and `completed` are the hooks; `sampling` is the process between them. A hook must end in time whatever the
driver, the Kubernetes API or the job's files do, so nothing here is imported by the rest of Paddock.
"""
