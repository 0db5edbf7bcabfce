"""`status`: the state of a fleet, once or again and again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import parameter
from paddock.console.project import root
from paddock.console.watch import watch
from paddock.fleet import load
from paddock.operate.connect import NoCluster, check_reached, connect
from paddock.operate.parameters import OfClusterAndGitHub
from paddock.operate.snapshot.read import read
from paddock.operate.status.compute import status as computed
from paddock.operate.status.control_plane import read_control_plane
from paddock.operate.status.report import Status

PERIOD = 10.0
"""Seconds from one screen of `--watch` to the next."""


@dataclass(frozen=True, kw_only=True)
class ShowStatus(OfClusterAndGitHub):
    """Parameters of `status`."""

    watch: bool = parameter(False, "print it again every 10 seconds, until Ctrl-C")


@command()
def status(parameters: ShowStatus) -> Status | int:
    """Read the state of a fleet; with `watch` show it until Ctrl-C. Raises FleetError, BadFlag and NoCluster."""
    if parameters.watch and parameters.json.replaces_text:
        raise BadFlag("--watch with --json\n    expected: one of them\n    fix: run --json as often as you like")
    stack = load(root(), parameters.stack)
    sources = connect(stack.fleet, parameters)

    def look() -> Status:
        began = time.monotonic()
        snapshot = read(stack.fleet, sources)
        check_reached(snapshot)
        context = sources.kubernetes.cluster.context if sources.kubernetes else None
        plane = read_control_plane(sources.aws, stack.fleet.cluster_name) if sources.aws else None
        return computed(snapshot, stack.name, context, time.monotonic() - began, plane)

    def screen() -> Iterable[str]:
        try:
            report = look()
        except NoCluster as error:
            return str(error).splitlines()
        parameters.json.write(report.document())
        return report.text()

    if not parameters.watch:
        return look()
    watch(screen, every=PERIOD)
    return 0
