"""One verdict on a machine's GPUs, what it rests on, and one thing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from paddock.gpu import inventory as detect
from paddock.gpu.drivers.base import Reader
from paddock.gpu.errors import GpuInputError
from paddock.gpu.health.rules import ACTIONS, NOTHING_ELSE, Action, Around, Finding, findings
from paddock.gpu.health.xid import XidEvent, events
from paddock.gpu.host import kernel_log
from paddock.gpu.host.machine import Run
from paddock.gpu.model import Inventory

SCHEMA = 1
Verdict = Literal["healthy", "degraded", "unknown", "unhealthy"]
VERDICTS: tuple[Verdict, ...] = ("healthy", "degraded", "unknown", "unhealthy")
"""From good to bad. A GPU of which nothing is known may be any of them, so unknown is worse than degraded."""
NodeAction = Literal["none", "restart-app", "drain-and-replace"]
_EXIT: dict[Verdict, int] = {"healthy": 0, "degraded": 1, "unknown": 2, "unhealthy": 2}
_VERDICT: dict[str, Verdict] = {
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
    """`action` is the least that answers all findings; `unchecked` says what could not be looked at, and why."""

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
        """0 healthy, 1 degraded, 2 unhealthy or unknown: from 2 on, give the machine no work."""
        return _EXIT[self.verdict]


def check(
    *,
    around: Around = NOTHING_ELSE,
    since: timedelta | None = None,
    log: bool = True,
    root: Path = Path("/"),
    reader: Reader | None = None,
    run: Run | None = None,
) -> Health:
    """Of this machine now. `since` is how far back Xids count, by default to boot; `log` reads the kernel's."""
    inventory = detect.inventory(processes=around.idle, topology=True, root=root, reader=reader)
    found = kernel_log.read(since=since, root=root, run=run) if log else kernel_log.KernelLog(reason="not asked for")
    unchecked = [f"Xids: {found.reason}"] if found.reason else []
    fabric = around.fabric_manager
    if fabric is None and _switched(inventory):
        fabric = fabric_manager_runs(root) if not inventory.machine.container else None
        if fabric is None:
            unchecked.append("the fabric manager: a container does not see the host's services")
    known = replace(around, uptime=around.uptime or kernel_log.uptime(root), fabric_manager=fabric)
    return judge(inventory, events(found.lines), known, tuple(unchecked))


def judge(
    inventory: Inventory,
    xids: Sequence[XidEvent] = (),
    around: Around = NOTHING_ELSE,
    unchecked: tuple[str, ...] = (),
) -> Health:
    """By what is known, the worst finding."""
    found = findings(inventory, xids, around)
    action = _most(found)
    return Health(
        inventory.taken_at,
        inventory.machine.name,
        _worst(found),
        action,
        node_action(action, _worst(found)),
        tuple(
            GpuHealth(gpu.index, gpu.uuid, gpu.name, _worst(own), _most(own))
            for gpu in inventory.gpus
            for own in [[one for one in found if one.index == gpu.index]]
        ),
        tuple(sorted(found, key=lambda one: -VERDICTS.index(_VERDICT[one.severity]))),
        (*unchecked, *inventory.notes),
    )


def node_action(action: Action, verdict: Verdict) -> NodeAction:
    """What to do with a machine that nobody goes to, such as a CI node in a cloud: it is not worth mending."""
    if action in {"reset", "reboot", "replace-node"} or verdict in {"unhealthy", "unknown"}:
        return "drain-and-replace"
    return "restart-app" if action == "restart-app" else "none"


def expected(instance_type: str) -> Around:
    """The GPUs that an EC2 instance type has. Raises GpuInputError for one that the catalogue does not hold."""
    from paddock.catalog import UnknownInstanceType, instance

    try:
        found = instance(instance_type)
    except UnknownInstanceType as error:
        raise GpuInputError(f"{error}\n    expected: an instance type of the catalogue\n    fix: --expect N") from None
    return Around(expect=found.gpu_count, expect_model=found.gpu)


def fabric_manager_runs(root: Path = Path("/")) -> bool | None:
    """None where processes cannot be listed."""
    try:
        processes = [one for one in (root / "proc").iterdir() if one.name.isdecimal()]
    except OSError:
        return None
    return any(_program(one) == "nv-fabricmanage" for one in processes)  # the kernel keeps 15 letters


def _program(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _switched(inventory: Inventory) -> bool:
    return any(link.active and link.to == "switch" for gpu in inventory.gpus for link in gpu.nvlinks)


def _worst(found: Sequence[Finding]) -> Verdict:
    return max((_VERDICT[one.severity] for one in found), key=VERDICTS.index, default="healthy")


def _most(found: Sequence[Finding]) -> Action:
    return max((one.action for one in found), key=ACTIONS.index, default="none")
