"""Outputs of a stack, for its owner and for the stacks that build on it."""

from __future__ import annotations

import pulumi

from infra.cluster.control_plane import Cluster
from infra.images.push import ImagePush
from infra.images.registry import Registry
from infra.monitoring.job_logs import JobLogs
from paddock.fleet import Fleet, Runner


def images(registry: Registry, github: ImagePush | None) -> None:
    """Export registries, and the roles of the workflows that make them."""
    pulumi.export("registry", registry.url)
    if github:
        pulumi.export("imagePushRole", github.role_arn)
        if github.ami_role_arn:
            pulumi.export("amiBuildRole", github.ami_role_arn)


def cluster(component: Cluster) -> None:
    pulumi.export("kubeconfigCommand", component.command)
    pulumi.export("kubeconfig", component.kubeconfig)


def job_logs(component: JobLogs) -> None:
    """Export the log group's name, for `aws logs tail`."""
    pulumi.export("jobLogs", component.group.name)


def runners(fleet: Fleet) -> None:
    """Each runner's labels, and the line a workflow asks for it with."""
    pulumi.export(
        "runners",
        {
            name: {"labels": list(runner.effective_labels), "runsOn": runs_on(runner)}
            for name, runner in fleet.runners.items()
        },
    )


def runs_on(runner: Runner) -> str:
    """The ready line for a workflow file."""
    return f"runs-on: [{', '.join(runner.effective_labels)}]"
