"""Health check of a machine's GPUs: one verdict, the findings behind it, and one action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from paddock.gpu import inventory as detect
from paddock.gpu.drivers.base import Reader
from paddock.gpu.errors import DriverHangs, GpuInputError
from paddock.gpu.health.rules import ACTIONS, NO_CONTEXT, Action, Finding, HealthContext, findings
from paddock.gpu.health.xid import Event, events
from paddock.gpu.host import kernel_log
from paddock.gpu.host import machine as host_machine
from paddock.gpu.host.machine import Run
from paddock.gpu.model import SCHEMA, Inventory

Verdict = Literal["healthy", "degraded", "unknown", "unhealthy"]
VERDICTS: tuple[Verdict, ...] = ("healthy", "degraded", "unknown", "unhealthy")
"""From good to bad. A GPU about which nothing is known may be unhealthy, so unknown is worse than degraded."""
NodeAction = Literal["none", "restart-app", "drain-and-replace"]
_EXIT_CODE: dict[Verdict, int] = {"healthy": 0, "degraded": 1, "unknown": 3, "unhealthy": 2}
_VERDICT_OF_SEVERITY: dict[str, Verdict] = {
    "note": "healthy",
    "degraded": "degraded",
    "unknown": "unknown",
    "unhealthy": "unhealthy",
}


@dataclass(frozen=True, slots=True)
class GpuHealth:
    index: int
    uuid: str | None
    name: str | None
    verdict: Verdict
    action: Action


@dataclass(frozen=True, slots=True)
class Health:
    """Verdict on a machine: `action` is the mildest for all findings; `unchecked` says what was not, and why."""

    taken_at: str
    machine: str
    verdict: Verdict
    action: Action
    node_action: NodeAction
    gpus: tuple[GpuHealth, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 degraded, 2 unhealthy, 3 unknown: from 2 on, give the machine no work."""
        return _EXIT_CODE[self.verdict]


def check(
    *,
    context: HealthContext = NO_CONTEXT,
    since: timedelta | None = None,
    read_log: bool = True,
    root: Path = Path("/"),
    reader: Reader | None = None,
    run: Run | None = None,
) -> Health:
    """Check this machine now. Xids count from `since` ago, by default from boot; `read_log` reads the kernel log."""
    inventory = detect.inventory(processes=context.idle, topology=True, root=root, reader=reader)
    log = kernel_log.read(since=since, root=root, run=run) if read_log else kernel_log.KernelLog(reason="not read")
    unchecked = [f"Xids: {log.reason}"] if log.reason else []
    fabric = context.fabric_manager
    if fabric is None and any(link.active and link.to == "switch" for gpu in inventory.gpus for link in gpu.nvlinks):
        fabric = fabric_manager_runs(root) if not inventory.machine.container else None
        if fabric is None:
            unchecked.append("the fabric manager: a container does not see the host's services")
    complete = replace(context, uptime=context.uptime or kernel_log.uptime(root), fabric_manager=fabric)
    return evaluate(inventory, events(log.lines), complete, tuple(unchecked))


def evaluate(
    inventory: Inventory,
    xids: Sequence[Event] = (),
    context: HealthContext = NO_CONTEXT,
    unchecked: tuple[str, ...] = (),
) -> Health:
    """Evaluate the rules on facts that were read before; the verdict is that of the worst finding."""
    results = findings(inventory, xids, context)
    action = _strongest_action(results)
    return Health(
        inventory.taken_at,
        inventory.machine.name,
        _worst_verdict(results),
        action,
        node_action(action, _worst_verdict(results)),
        tuple(
            GpuHealth(gpu.index, gpu.uuid, gpu.name, _worst_verdict(own), _strongest_action(own))
            for gpu in inventory.gpus
            for own in [[finding for finding in results if finding.index == gpu.index]]
        ),
        tuple(sorted(results, key=lambda finding: -VERDICTS.index(_VERDICT_OF_SEVERITY[finding.severity]))),
        (*unchecked, *inventory.notes),
    )


def unfit(inventory: Inventory, xids: Sequence[Event] = ()) -> dict[int, Finding]:
    """Return, by index, the GPUs that should get no work, each with the gravest finding that says why."""
    results = [finding for finding in findings(inventory, xids, NO_CONTEXT) if finding.disqualifies]
    results.sort(key=lambda finding: VERDICTS.index(_VERDICT_OF_SEVERITY[finding.severity]))
    return {finding.index: finding for finding in results if finding.index is not None}


def logged_events() -> tuple[Event, ...]:
    """Return the Xids and SXids since boot; none where this user may not read the kernel's log."""
    return events(kernel_log.read().lines)


def hanging(error: DriverHangs) -> Health:
    """Return the verdict on a machine whose driver does not answer in time."""
    machine = host_machine.machine()
    what, _, fix = str(error).partition("\n")
    finding = Finding("driver-hangs", "unhealthy", "reboot", what, fix.rpartition("fix: ")[2])
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Health(taken_at, machine.name, "unhealthy", "reboot", "drain-and-replace", (), (finding,))


def node_action(action: Action, verdict: Verdict) -> NodeAction:
    """Return the action for a machine that nobody repairs, such as a CI node in a cloud."""
    if action in {"reset", "reboot", "replace-node"} or verdict in {"unhealthy", "unknown"}:
        return "drain-and-replace"
    return "restart-app" if action == "restart-app" else "none"


def expected(instance_type: str) -> HealthContext:
    """Return the GPUs of an EC2 instance type. Raises GpuInputError for a type that the catalogue does not have."""
    from paddock.catalog import UnknownInstanceType, instance

    try:
        catalog_instance = instance(instance_type)
    except UnknownInstanceType as error:
        raise GpuInputError(f"{error}\n    expected: an instance type of the catalogue\n    fix: --expect N") from None
    return HealthContext(expect=catalog_instance.gpu_count, expect_model=catalog_instance.gpu)


def fabric_manager_runs(root: Path = Path("/")) -> bool | None:
    """Return None where processes cannot be listed."""
    try:
        processes = [folder for folder in (root / "proc").iterdir() if folder.name.isdecimal()]
    except OSError:
        return None
    return any(_command_name(folder) == "nv-fabricmanage" for folder in processes)  # the kernel keeps 15 characters


def _command_name(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _worst_verdict(results: Sequence[Finding]) -> Verdict:
    return max((_VERDICT_OF_SEVERITY[finding.severity] for finding in results), key=VERDICTS.index, default="healthy")


def _strongest_action(results: Sequence[Finding]) -> Action:
    return max((finding.action for finding in results), key=ACTIONS.index, default="none")
