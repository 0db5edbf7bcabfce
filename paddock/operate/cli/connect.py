"""Readers of a fleet for a command: what cannot be reached becomes a reason in the snapshot, not an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.fleet import Fleet
from paddock.operate.cli.credential import credential
from paddock.operate.snapshot.read import Sources
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader, installation_reader
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Access:
    """Flags that say where a fleet is read. `clients` gives the boto3 client of a service in a region."""

    kubeconfig: Path | None = None
    context: str | None = None
    github_key: Path | None = None
    clients: Callable[[str, str], Any] | None = None


def connect(fleet: Fleet, access: Access, job: str = "") -> Sources:
    """Return the readers. Raises BadFlag for a flag that names what is not there."""
    reasons: dict[str, str] = {}
    kubernetes: KubernetesReader | None = None
    github: GitHubReader | None = None
    key = credential(access.github_key) if access.github_key else ""
    try:
        kubernetes = KubernetesReader(kubeconfig.load(access.kubeconfig, access.context, fleet))
    except Unavailable as error:
        reasons["kubernetes"] = str(error)
    try:
        github = installation_reader(fleet.github, key) if key else None
    except Unavailable as error:
        reasons["github"] = str(error)
    aws = AwsReader(fleet.region, access.clients) if fleet.owns_nodes else None
    return Sources(kubernetes, aws, github, reasons, job)
