"""`verify`: a proof that GPU jobs can run, kept in a record."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.output import BadFlag, write
from paddock.console.parameters import parameter
from paddock.console.progress import progress
from paddock.console.project import root
from paddock.duration import Seconds
from paddock.fleet import load
from paddock.operate.connect import check_reached, connect, to_change
from paddock.operate.parameters import OfClusterAndGitHub
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.kubernetes_jobs import Jobs
from paddock.operate.verify.canary import Canary
from paddock.operate.verify.report import Verified, junit
from paddock.operate.verify.run import Verification

POLL = 1.0
"""Seconds from one look at a test to the next."""


@dataclass(frozen=True, kw_only=True)
class Verify(OfClusterAndGitHub):
    """Parameters of `verify`."""

    canary: str = parameter("", "a workflow to run, too: owner/repository/file.yml@branch, with --github-key")
    timeout: float = parameter(1800.0, "for each test", unit=Seconds, gt=0)
    junit: Path | None = parameter(None, "also write the results there, as JUnit's XML", writes=True)


@command()
def verify(parameters: Verify) -> Verified:
    """Prove that a GPU job can run. Raises FleetError, BadFlag, OutputError and NoCluster."""
    if parameters.timeout == math.inf:  # Kubernetes counts a Job's deadline in whole seconds
        raise BadFlag("--timeout is inf\n    expected: a time that ends, such as 30m\n    fix: leave it out")
    fleet = load(root(), parameters.stack).fleet
    sources = connect(fleet, parameters)
    cluster = to_change(fleet, sources)
    check_reached(read(fleet, Sources(sources.kubernetes), parts=("nodes",)))
    if parameters.canary and sources.github is None:
        raise BadFlag(
            "--canary without --github-key\n    expected: the App's key or a token\n    fix: --github-key FILE"
        )
    workflow = Canary.parse(parameters.canary, sources.github) if parameters.canary and sources.github else None
    with progress() as shown:
        report = Verification(
            fleet,
            parameters.stack,
            cluster.context,
            lambda: read(fleet, sources),
            lambda namespace, label: Jobs(cluster, namespace, label),
            workflow,
            parameters.timeout,
            shown.now,
            poll=POLL,
        ).verify()
    _keep(report)
    if parameters.junit:
        write(parameters.junit, junit(report))
    return report


def records(stack: str) -> Path:
    """Return the file with a line of JSON for each run of a stack."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state, "paddock/verify", f"{stack}.jsonl")


def _keep(report: Verified) -> None:
    path = records(report.stack)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(report.document(), separators=(',', ':'))}\n")
    except OSError as error:  # a record that cannot be kept fails no fleet
        sys.stderr.write(f"the record is not kept: {path}: {error.strerror}\n")
