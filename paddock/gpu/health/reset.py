"""Resetting a GPU: what it would take, and the doing of it.

NVML has no call that resets a GPU, so nvidia-smi does it. A soft reset gives a GPU its usual clocks and compute mode
back and clears the volatile error counts: NVML can do that, and it ends no program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.leases.lease import Lease
from paddock.gpu.model import Gpu, Inventory

SCHEMA = 1
Kind = Literal["full", "soft"]
_SECONDS = 180
"""A reset of eight GPUs on NVSwitches with their links trained anew takes up to two minutes."""
_FABRIC = ("systemctl", "restart", "nvidia-fabricmanager")


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    output: str


Run = Callable[[Sequence[str]], Done]


@dataclass(frozen=True, slots=True)
class Step:
    """`command` is a program's, or the NVML function and the UUID of a soft reset.

    `always` steps put back what was changed, and are done also when one before them failed.
    """

    id: str
    what: str
    command: tuple[str, ...]
    always: bool = False
    nvml: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`refused` says why it will not be done; then there are no steps. `gpus` are all that are reset together."""

    uuid: str
    kind: Kind
    gpus: tuple[str, ...]
    steps: tuple[Step, ...]
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Outcome:
    step: str
    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Result:
    """`after` is the state of the GPUs afterwards."""

    plan: Plan
    outcomes: tuple[Outcome, ...]
    after: tuple[tuple[str, str], ...]
    ok: bool
    schema: int = SCHEMA


def plan(inventory: Inventory, uuid: str, leases: Iterable[Lease] = (), *, kind: Kind = "full") -> Plan:
    """What a reset would do. Changes nothing.

    The inventory must have been read with its processes and its topology; `leases` are those that are held. Raises
    GpuInputError for a UUID that is not here.
    """
    gpu = inventory.gpu(uuid)
    if gpu is None or gpu.uuid is None:
        from difflib import get_close_matches

        known = [one.uuid for one in inventory.gpus if one.uuid]
        near = get_close_matches(uuid, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}" if known else inventory.reason
        raise GpuInputError(f"there is no GPU {uuid!r}\n    expected: {hint}\n    fix: paddock gpu.list")
    together = _together(inventory, gpu) if kind == "full" else (gpu,)
    uuids = tuple(one.uuid or "" for one in together)
    refused = tuple(_refusals(inventory, together, tuple(leases), kind))
    if refused:
        return Plan(gpu.uuid, kind, uuids, (), refused, tuple(_notes(inventory, gpu, together, uuid)))
    steps = _full(inventory, together) if kind == "full" else _soft(gpu)
    return Plan(gpu.uuid, kind, uuids, tuple(steps), (), tuple(_notes(inventory, gpu, together, uuid)))


def plan_for(inventory: Inventory, gpu: Gpu, leases: Iterable[Lease] = (), *, kind: Kind = "full") -> Plan:
    """The same for a GPU of the inventory. Raises GpuError for one that cannot be named to the driver."""
    if gpu.uuid is None:
        raise GpuError(
            f"GPU {gpu.index} cannot be reset: it is {gpu.state}, and tells no UUID\n    expected: one that answers"
            "\n    fix: reboot the machine"
        )
    return plan(inventory, gpu.uuid, leases, kind=kind)


def execute(
    made: Plan,
    look: Callable[[], Inventory],
    leases: Callable[[], Iterable[Lease]] = tuple,
    *,
    run: Run | None = None,
    root: bool | None = None,
) -> Result:
    """Does it, after looking once more whether the GPUs are in use.

    `look` reads the inventory with processes and topology; `run` does all steps, NVML's too. Raises GpuError where it
    is refused and where `root` is wanting; a step that fails is in the result.
    """
    again = plan(look(), made.uuid, leases(), kind=made.kind)
    if again.refused:
        raise GpuError(
            f"GPU {made.uuid} is not reset: {'; '.join(again.refused)}\n    expected: a GPU that nothing uses"
            "\n    fix: end what uses it, then ask again"
        )
    if set(again.gpus) != set(made.gpus) or again.steps != made.steps:
        raise GpuError(
            f"GPU {made.uuid} is not reset: the machine changed since the plan was made"
            "\n    expected: the plan of now\n    fix: look at a new plan"
        )
    if not (os.geteuid() == 0 if root is None else root):
        raise GpuError("resetting a GPU needs root\n    expected: user 0\n    fix: the same again with sudo")
    outcomes = _perform(again.steps, run)
    after = look()
    states = tuple((uuid, gpu.state if (gpu := after.gpu(uuid)) else "missing") for uuid in again.gpus)
    worked = all(outcome.code == 0 for outcome in outcomes)
    return Result(again, outcomes, states, worked and all(state == "ok" for _, state in states))


def _perform(steps: Sequence[Step], run: Run | None) -> tuple[Outcome, ...]:
    """Up to the first that fails; what was changed is put back in any case, also at Ctrl-C."""
    outcomes: list[Outcome] = []

    def do(step: Step) -> bool:
        done = (run or (_call if step.nvml else _run))(step.command)
        outcomes.append(Outcome(step.id, done.code, done.output.strip()))
        return done.code == 0

    rest = list(steps)
    try:
        while rest and do(rest.pop(0)):
            pass
    finally:
        for step in rest:
            if step.always:
                do(step)
    return tuple(outcomes)


def _together(inventory: Inventory, gpu: Gpu) -> tuple[Gpu, ...]:
    """All GPUs that NVLinks join to it, by whichever way: a reset of one breaks the links of the others."""
    if not any(link.active for link in gpu.nvlinks):
        return (gpu,)
    beside: dict[int, set[int]] = {}
    for pair in inventory.pairs:
        if pair.nvlinks:
            beside.setdefault(pair.a, set()).add(pair.b)
            beside.setdefault(pair.b, set()).add(pair.a)
    joined, open_ = {gpu.index}, [gpu.index]
    while open_:
        new = beside.get(open_.pop(), set()) - joined
        joined |= new
        open_ += new
    if len(joined) == 1:  # the topology does not say to which, so to all that have links
        joined |= {one.index for one in inventory.usable if any(link.active for link in one.nvlinks)}
    return tuple(one for one in inventory.gpus if one.index in joined)


def _refusals(inventory: Inventory, together: Sequence[Gpu], leases: Sequence[Lease], kind: Kind) -> list[str]:
    gpu = together[0]
    if gpu.vendor == "amd":
        return [f"AMD GPUs are reset by amd-smi: `amd-smi reset --gpureset --gpu {gpu.index}`, as root"]
    if gpu.vendor != "nvidia":
        return ["macOS has no way to reset its GPU: restart the machine"]
    if inventory.machine.wsl:
        return ["the GPU belongs to Windows, which resets it: restart Windows, or its driver with Win+Ctrl+Shift+B"]
    refused = []
    if inventory.machine.container and kind == "full":
        refused.append("this is a container: reset it on the host, once all its containers are stopped")
    taken = {device.gpu: lease for lease in leases for device in lease.devices}
    for one in together:
        name = f"GPU {one.index}"
        if one.state != "ok" and one.recovery_action not in {"gpu-reset", "bus-reset", "drain-and-reset"}:
            refused.append(f"{name} is {one.state} ({one.reason}), and a reset does not reach it: reboot the machine")
            continue
        if one.uuid in taken:
            refused.append(f"{name} is leased to {taken[one.uuid].holder}")
        if kind == "full" and one.state == "ok":
            refused += _used(one, name)
    return refused


def _used(gpu: Gpu, name: str) -> list[str]:
    if gpu.processes is None:
        return [f"which processes are on {name} cannot be read, so it may be in use"]
    if not gpu.processes:
        return []
    shown = ", ".join(f"{one.name or 'pid'} {one.pid}" for one in gpu.processes[:3])
    more = f" and {len(gpu.processes) - 3} more" if len(gpu.processes) > 3 else ""
    return [f"{name} is in use by {shown}{more}"]


def _notes(inventory: Inventory, gpu: Gpu, together: Sequence[Gpu], asked: str) -> list[str]:
    notes = []
    if asked != gpu.uuid:
        notes.append(f"{asked} is a part of GPU {gpu.index}: the whole GPU is reset")
    if len(together) > 1:
        indexes = ", ".join(str(one.index) for one in together)
        notes.append(f"GPUs {indexes} are joined by NVLinks and are reset together")
    if any(one.mig and one.mig.enabled for one in together):
        notes.append("MIG devices are gone after a reset and have to be made again")
    notes.append("monitors that hold the GPU open (DCGM, its exporter) have to be stopped first, or nvidia-smi refuses")
    return notes if inventory.gpus and gpu.vendor == "nvidia" else notes[:-1]


def _full(inventory: Inventory, together: Sequence[Gpu]) -> list[Step]:
    """Persistence mode counts as use, so it is off meanwhile; and the fabric manager joins reset GPUs anew."""
    every = len(together) == len(inventory.gpus)
    names = ",".join(one.uuid or "" for one in together)
    which = () if every and len(together) > 1 else ("-i", names)
    persistent = [one for one in together if one.persistence]
    held = ",".join(one.uuid or "" for one in persistent)
    steps = []
    if persistent:
        off = ("nvidia-smi", "-i", held, "-pm", "0")
        steps.append(Step("persistence-off", "switch persistence mode off, which counts as use", off))
    what = f"reset GPU {', '.join(str(one.index) for one in together)}"
    steps.append(Step("reset", what, ("nvidia-smi", *which, "-r")))
    if any(link.active and link.to == "switch" for one in together for link in one.nvlinks):
        steps.append(Step("fabric-manager", "restart the fabric manager, which joins them again", _FABRIC))
    if persistent:
        on = ("nvidia-smi", "-i", held, "-pm", "1")
        steps.append(Step("persistence-on", "switch persistence mode on again", on, True))
    return steps


def _soft(gpu: Gpu) -> list[Step]:
    calls = (
        ("nvmlDeviceResetGpuLockedClocks", "let the clocks be the driver's again"),
        ("nvmlDeviceResetMemoryLockedClocks", "and those of the memory"),
        ("nvmlDeviceResetApplicationsClocks", "forget the clocks that programs were to have"),
        ("nvmlDeviceSetComputeMode", "let every program use it"),
        ("nvmlDeviceClearEccErrorCounts", "clear the volatile error counts"),
    )
    return [Step(name, what, (name, gpu.uuid or ""), nvml=True) for name, what in calls]


def _call(command: Sequence[str]) -> Done:
    """NVML's function for the GPU; one that this GPU does not have has nothing to be reset."""
    from paddock.gpu.drivers.base import Unavailable
    from paddock.gpu.drivers.nvml import session

    name, uuid = command
    try:
        nvml = session().nvml
    except Unavailable as error:
        return Done(error.code or 1, str(error))
    extra = {
        "nvmlDeviceSetComputeMode": (nvml.NVML_COMPUTEMODE_DEFAULT,),
        "nvmlDeviceClearEccErrorCounts": (nvml.NVML_VOLATILE_ECC,),
    }
    absent = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_DEPRECATED}
    try:
        getattr(nvml, name)(nvml.nvmlDeviceGetHandleByUUID(uuid), *extra.get(name, ()))
    except nvml.NVMLError as error:
        return Done(0, "this GPU has no such thing") if error.value in absent else Done(error.value, str(error))
    return Done(0, "")


def _run(command: Sequence[str]) -> Done:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except FileNotFoundError:
        return Done(127, f"there is no {command[0]} here: it comes with the driver's utilities")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Done(124, str(error))
    return Done(done.returncode, done.stdout + done.stderr)
