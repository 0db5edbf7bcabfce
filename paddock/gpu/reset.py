"""Plan and execute the reset of a GPU.

NVML has no call that resets a GPU, so nvidia-smi does it. A soft reset restores the default clocks and compute mode and
clears the volatile error counts: NVML can do that, and it ends no program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.errors import did_you_mean, program
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.leases.lease import Lease
from paddock.gpu.model import SCHEMA, Gpu, Inventory

Kind = Literal["full", "soft"]
_TIMEOUT = 180
"""Seconds: a reset of eight GPUs on NVSwitches, which retrains all links, takes up to two minutes."""
_RESTART_FABRIC_MANAGER = ("systemctl", "restart", "nvidia-fabricmanager")


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    output: str


Run = Callable[[Sequence[str]], CommandResult]


@dataclass(frozen=True, slots=True)
class ResetStep:
    """One step: `command` is a program with arguments, or for a soft reset the NVML function and the UUID.

    `always` steps restore a changed setting and run even when an earlier step failed.
    """

    id: str
    what: str
    command: tuple[str, ...]
    always: bool = False
    nvml: bool = False


@dataclass(frozen=True, slots=True)
class ResetSteps:
    """Steps of a reset, or the reasons in `refused` and no steps. `gpus` are all that are reset together."""

    uuid: str
    kind: Kind
    gpus: tuple[str, ...]
    steps: tuple[ResetStep, ...]
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
    """Result of a reset: `after` is the state of each GPU afterwards."""

    plan: ResetSteps
    outcomes: tuple[Outcome, ...]
    after: tuple[tuple[str, str], ...]
    ok: bool
    schema: int = SCHEMA


def plan(inventory: Inventory, uuid: str, leases: Iterable[Lease] = (), *, kind: Kind = "full") -> ResetSteps:
    """Return the plan of a reset; changes nothing.

    The inventory must include processes and topology; `leases` are the active ones. Raises GpuInputError for a UUID
    that this machine does not have.
    """
    gpu = inventory.gpu(uuid)
    if gpu is None or gpu.uuid is None:
        uuids = [candidate.uuid for candidate in inventory.gpus if candidate.uuid]
        hint = did_you_mean(uuid, uuids, f"one of {', '.join(uuids)}") if uuids else inventory.reason
        raise GpuInputError(f"there is no GPU {uuid!r}\n    expected: {hint}\n    fix: {program()} gpu.list")
    group = _linked_group(inventory, gpu) if kind == "full" else (gpu,)
    group_uuids = tuple(member.uuid or "" for member in group)
    refused = tuple(_refusals(inventory, group, tuple(leases), kind))
    if refused:
        return ResetSteps(gpu.uuid, kind, group_uuids, (), refused, tuple(_notes(inventory, gpu, group, uuid)))
    steps = _full_steps(inventory, group) if kind == "full" else _soft_steps(gpu)
    return ResetSteps(gpu.uuid, kind, group_uuids, tuple(steps), (), tuple(_notes(inventory, gpu, group, uuid)))


def plan_for(inventory: Inventory, gpu: Gpu, leases: Iterable[Lease] = (), *, kind: Kind = "full") -> ResetSteps:
    """Return the plan for a GPU of the inventory. Raises GpuError if it has no UUID."""
    if gpu.uuid is None:
        raise GpuError(
            f"GPU {gpu.index} cannot be reset: it is {gpu.state}, and has no UUID\n    expected: a GPU that answers"
            "\n    fix: reboot the machine"
        )
    return plan(inventory, gpu.uuid, leases, kind=kind)


def execute(
    approved: ResetSteps,
    read_inventory: Callable[[], Inventory],
    leases: Callable[[], Iterable[Lease]] = tuple,
    *,
    run: Run | None = None,
    root: bool | None = None,
) -> Result:
    """Execute an approved plan, after checking again that the GPUs are not in use.

    `read_inventory` reads the inventory with processes and topology; `run` executes all steps, also those of NVML.
    Raises GpuError where the reset is refused or the user is not `root`; a failed step is part of the result.
    """
    current = plan(read_inventory(), approved.uuid, leases(), kind=approved.kind)
    if current.refused:
        raise GpuError(
            f"GPU {approved.uuid} is not reset: {'; '.join(current.refused)}\n    expected: a GPU that nothing uses"
            "\n    fix: end what uses it, then ask again"
        )
    if set(current.gpus) != set(approved.gpus) or current.steps != approved.steps:
        raise GpuError(
            f"GPU {approved.uuid} is not reset: the machine changed since the plan was made"
            "\n    expected: a current plan\n    fix: make a new plan"
        )
    if not (os.geteuid() == 0 if root is None else root):
        raise GpuError("resetting a GPU needs root\n    expected: user 0\n    fix: the same again with sudo")
    outcomes = _perform(current.steps, run)
    after = read_inventory()
    states = tuple((uuid, gpu.state if (gpu := after.gpu(uuid)) else "missing") for uuid in current.gpus)
    succeeded = all(outcome.code == 0 for outcome in outcomes)
    return Result(current, outcomes, states, succeeded and all(state == "ok" for _, state in states))


def _perform(steps: Sequence[ResetStep], run: Run | None) -> tuple[Outcome, ...]:
    """Run steps up to the first failure; changed settings are restored in any case, also after Ctrl-C."""
    outcomes: list[Outcome] = []

    def perform(step: ResetStep) -> bool:
        result = (run or (_call_nvml if step.nvml else _run_program))(step.command)
        outcomes.append(Outcome(step.id, result.code, result.output.strip()))
        return result.code == 0

    rest = list(steps)
    try:
        while rest and perform(rest.pop(0)):
            pass
    finally:
        for step in rest:
            if step.always:
                perform(step)
    return tuple(outcomes)


def _linked_group(inventory: Inventory, gpu: Gpu) -> tuple[Gpu, ...]:
    """Return all GPUs that NVLinks connect to it, directly or not: a reset of one breaks the links of the others."""
    if not any(link.active for link in gpu.nvlinks):
        return (gpu,)
    neighbours: dict[int, set[int]] = {}
    for pair in inventory.pairs:
        if pair.nvlinks:
            neighbours.setdefault(pair.a, set()).add(pair.b)
            neighbours.setdefault(pair.b, set()).add(pair.a)
    joined, pending = {gpu.index}, [gpu.index]
    while pending:
        new = neighbours.get(pending.pop(), set()) - joined
        joined |= new
        pending += new
    if len(joined) == 1:  # the topology does not show which, so all GPUs with active links
        joined |= {other.index for other in inventory.usable if any(link.active for link in other.nvlinks)}
    return tuple(other for other in inventory.gpus if other.index in joined)


def _refusals(inventory: Inventory, group: Sequence[Gpu], leases: Sequence[Lease], kind: Kind) -> list[str]:
    gpu = group[0]
    if gpu.vendor == "amd":
        return [f"AMD GPUs are reset by amd-smi: `amd-smi reset --gpureset --gpu {gpu.index}`, as root"]
    if gpu.vendor != "nvidia":
        return ["macOS has no way to reset its GPU: restart the machine"]
    if inventory.machine.wsl:
        return ["the GPU belongs to Windows, which resets it: restart Windows, or its driver with Win+Ctrl+Shift+B"]
    refused = []
    if inventory.machine.container and kind == "full":
        refused.append("this is a container: reset it on the host, once all its containers are stopped")
    leased = {device.gpu: lease for lease in leases for device in lease.devices}
    for member in group:
        name = f"GPU {member.index}"
        if member.state != "ok" and member.recovery_action not in {"gpu-reset", "bus-reset", "drain-and-reset"}:
            refused.append(
                f"{name} is {member.state} ({member.reason}), and a reset does not reach it: reboot the machine"
            )
            continue
        if member.uuid in leased:
            refused.append(f"{name} is leased to {leased[member.uuid].holder}")
        if kind == "full" and member.state == "ok":
            refused += _use(member, name)
    return refused


def _use(gpu: Gpu, name: str) -> list[str]:
    if gpu.processes is None:
        return [f"which processes are on {name} cannot be read, so it may be in use"]
    if not gpu.processes:
        return []
    names = ", ".join(f"{process.name or 'pid'} {process.pid}" for process in gpu.processes[:3])
    more = f" and {len(gpu.processes) - 3} more" if len(gpu.processes) > 3 else ""
    return [f"{name} is in use by {names}{more}"]


def _notes(inventory: Inventory, gpu: Gpu, group: Sequence[Gpu], requested: str) -> list[str]:
    notes = []
    if requested != gpu.uuid:
        notes.append(f"{requested} is a part of GPU {gpu.index}: the whole GPU is reset")
    if len(group) > 1:
        indexes = ", ".join(str(member.index) for member in group)
        notes.append(f"GPUs {indexes} are joined by NVLinks and are reset together")
    if any(member.mig and member.mig.enabled for member in group):
        notes.append("MIG devices do not survive a reset and must be created again")
    notes.append("monitors that hold the GPU open (DCGM, its exporter) have to be stopped first, or nvidia-smi refuses")
    return notes if inventory.gpus and gpu.vendor == "nvidia" else notes[:-1]


def _full_steps(inventory: Inventory, group: Sequence[Gpu]) -> list[ResetStep]:
    """Return the steps: persistence mode counts as use, so it is off meanwhile; the fabric manager reconnects GPUs."""
    all_gpus = len(group) == len(inventory.gpus)
    names = ",".join(member.uuid or "" for member in group)
    selection = () if all_gpus and len(group) > 1 else ("-i", names)
    persistent = [member for member in group if member.persistence]
    persistent_uuids = ",".join(member.uuid or "" for member in persistent)
    steps = []
    if persistent:
        off = ("nvidia-smi", "-i", persistent_uuids, "-pm", "0")
        steps.append(ResetStep("persistence-off", "switch persistence mode off, which counts as use", off))
    summary = f"reset GPU {', '.join(str(member.index) for member in group)}"
    steps.append(ResetStep("reset", summary, ("nvidia-smi", *selection, "-r")))
    if any(link.active and link.to == "switch" for member in group for link in member.nvlinks):
        steps.append(
            ResetStep("fabric-manager", "restart the fabric manager, which joins them again", _RESTART_FABRIC_MANAGER)
        )
    if persistent:
        on = ("nvidia-smi", "-i", persistent_uuids, "-pm", "1")
        steps.append(ResetStep("persistence-on", "switch persistence mode on again", on, True))
    return steps


def _soft_steps(gpu: Gpu) -> list[ResetStep]:
    calls = (
        ("nvmlDeviceResetGpuLockedClocks", "unlock the GPU's clocks"),
        ("nvmlDeviceResetMemoryLockedClocks", "unlock the memory's clocks"),
        ("nvmlDeviceResetApplicationsClocks", "restore the default clocks of applications"),
        ("nvmlDeviceSetComputeMode", "restore the default compute mode"),
        ("nvmlDeviceClearEccErrorCounts", "clear the volatile error counts"),
    )
    return [ResetStep(name, summary, (name, gpu.uuid or ""), nvml=True) for name, summary in calls]


def _call_nvml(command: Sequence[str]) -> CommandResult:
    """Call the NVML function for the GPU; a function that this GPU does not support is a success."""
    from paddock.gpu.drivers.base import DriverUnavailable
    from paddock.gpu.drivers.nvml import session

    name, uuid = command
    try:
        nvml = session().nvml
    except DriverUnavailable as error:
        return CommandResult(error.code or 1, str(error))
    extra = {
        "nvmlDeviceSetComputeMode": (nvml.NVML_COMPUTEMODE_DEFAULT,),
        "nvmlDeviceClearEccErrorCounts": (nvml.NVML_VOLATILE_ECC,),
    }
    absent = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_DEPRECATED}
    try:
        getattr(nvml, name)(nvml.nvmlDeviceGetHandleByUUID(uuid), *extra.get(name, ()))
    except nvml.NVMLError as error:
        return (
            CommandResult(0, "this GPU does not support it")
            if error.value in absent
            else CommandResult(error.value, str(error))
        )
    return CommandResult(0, "")


def _run_program(command: Sequence[str]) -> CommandResult:
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
        )
    except FileNotFoundError:
        return CommandResult(127, f"there is no {command[0]} here: it comes with the driver's utilities")
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandResult(124, str(error))
    return CommandResult(completed.returncode, completed.stdout + completed.stderr)
