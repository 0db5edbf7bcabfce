"""Logs of jobs: where the output of runner pods goes when the pods are gone."""

from __future__ import annotations

from typing import Literal

from paddock.fleet.model.base import Model, RetentionDays


class JobLogs(Model):
    """Output of runner pods: the runner's own log, the Docker daemon's, and what job containers print. GitHub keeps the
    logs of a workflow's steps, whatever is written here."""

    to: Literal["none", "cloudwatch"] = "none"
    """`none`: lost with the pod. `cloudwatch`: CloudWatch Logs, group `/paddock/NAME/jobs`, encrypted, paid by the GB.
    Fluent Bit on each node sends it, with a role that may write there and nowhere else. It takes an EKS cluster, in one
    that exists already with the add-on eks-pod-identity-agent."""
    days: RetentionDays = 365
    """Days that they are kept."""


class Logs(Model):
    """Logs that are kept beyond the life of what wrote them."""

    jobs: JobLogs = JobLogs()
    """Output of runner pods."""
