"""The control plane of an EKS cluster for the screen: what it runs, and what EKS says of its next version."""

from __future__ import annotations

from paddock.operate.inventory import eks
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.status.report import ControlPlane


def read_control_plane(aws: AwsReader, name: str) -> ControlPlane:
    """Return what EKS says of a cluster; what it does not say is None, with the reason."""
    try:
        there = eks.read_cluster(aws, name)
    except Unavailable as error:
        return ControlPlane(unknown=str(error), permission=error.permission or None)
    if there is None:
        return ControlPlane(unknown=f"EKS has no cluster {name} in {aws.region}")
    known = ControlPlane(version=there.version, status=there.status)
    major, _, minor = there.version.partition(".")
    if not minor.isdecimal():
        return known
    upgrade = f"{major}.{int(minor) + 1}"
    try:
        found = eks.read_insights(aws, name, upgrade)
    except Unavailable as error:
        return ControlPlane(
            version=there.version, status=there.status, unknown=str(error), permission=error.permission or None
        )
    if not found:
        return known
    worst = found[0]
    return ControlPlane(
        version=there.version,
        status=there.status,
        upgrade=upgrade,
        readiness=worst.status,
        reason=None if worst.status == "PASSING" else f"{worst.name}: {worst.reason}".removesuffix(": "),
    )
