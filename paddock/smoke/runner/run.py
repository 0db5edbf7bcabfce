"""The smoke test of this machine, from reading its GPUs to the verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddock.console.output import work_begins
from paddock.gpu.errors import DriverHangs, GpuInputError
from paddock.gpu.health import cuda
from paddock.gpu.health.check import check, expected, hanging
from paddock.gpu.health.rules import HealthContext
from paddock.gpu.host import machine as host_machine
from paddock.gpu.host.bounded import answer
from paddock.gpu.host.imds import own_instance_type
from paddock.gpu.inventory import inventory
from paddock.gpu.model import Inventory
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner.targets import Target, processor, targets
from paddock.smoke.stages import reported
from paddock.smoke.verdict import baselines
from paddock.smoke.verdict.model import MachineVerdict, StageResult, Tier

Notify = Callable[[StageResult], None]

_ON_CPU = "the stages ran on the CPU, whose speed has no limits"
_CPU_TIER = (
    "--cpu: tier 1 reads what GPUs report, and a CPU reports nothing of it\n    expected: --tier 2 or 3 with --cpu"
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a test. `gpus` are indexes or UUIDs, by default all; `soak` is in seconds."""

    tier: Tier = 2
    gpus: tuple[str, ...] = ()
    expect: str | None = None
    """Instance type, or the number of GPUs; by default this machine's own type, where it is EC2's."""
    soak: float = 600.0
    baselines: Path | None = None
    cpu: bool = False
    """Test the CPU, and no GPU."""
    python: str = ""
    """Interpreter that has torch, or numpy for the CPU; by default this one."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """GPUs that should be here. `fraction` is the part of each that the machine was given."""

    context: HealthContext
    fraction: float = 1.0
    note: str = ""


def run(
    options: Options,
    notify: Notify = lambda _: None,
    *,
    program: Sequence[str] | None = None,
    loading: float | None = None,
    environ: Mapping[str, str] = os.environ,
    instance_type: Callable[[], str | None] = own_instance_type,
) -> MachineVerdict:
    """Test this machine; an interrupt returns what is known until then, as incomplete.

    `program` is the command of workers, by default that of the interpreter with torch or numpy, and `loading` the
    seconds in which it has to load that. Raises GpuError, and SmokeInputError before anything is tested.
    """
    if options.cpu:
        return _processor_alone(options, notify, program, loading, environ)
    try:
        machine = answer(lambda: inventory(processes=True, topology=True))
    except DriverHangs as error:
        return _hanging(error, notify)
    expectation = expect(options.expect, instance_type, machine)
    chosen = targets(machine, options.gpus, expectation.fraction)
    learned = _learned(options.baselines, chosen)
    if machine.gpus:  # without one nothing but the verdict is to come
        work_begins()
        if program is None and options.tier > 1:
            from paddock.smoke.runner import worker

            program = worker.program("cuda", options.python)
    try:
        health = answer(lambda: check(context=replace(expectation.context, idle=True)))
    except DriverHangs as error:
        return _hanging(error, notify)
    results = reported.evaluate(machine, health, cuda.evaluate(machine), expectation.fraction)
    others = {gpu.uuid for gpu in machine.gpus} - {target.gpu.uuid for target in chosen} - {None}
    first = tuple(result for result in results if result.gpu not in others)
    for result in first:
        notify(result)
    devices = tuple(target.device for target in chosen)
    notes = (expectation.note,) if expectation.note else ()
    report = MachineVerdict(machine.taken_at, machine.machine.name, 1, devices, first, notes)
    if not machine.gpus:
        return replace(report, no_gpu=machine.reason or "none answers")
    if options.tier == 1:
        return report
    return _worked(report, machine, chosen, options, notify, program, loading, environ, learned)


def _processor_alone(
    options: Options,
    notify: Notify,
    program: Sequence[str] | None,
    loading: float | None,
    environ: Mapping[str, str],
) -> MachineVerdict:
    """Return the report on the CPU, for which no driver is read. Raises SmokeInputError."""
    for flag, given in (("--gpus", options.gpus), ("--expect", options.expect)):
        if given:
            raise SmokeInputError(f"{flag} is about GPUs, and --cpu tests none\n    expected: one of the two")
    if options.tier == 1:
        raise SmokeInputError(_CPU_TIER)
    learned = {"cpu": baselines.read(options.baselines, "cpu")} if options.baselines else {}
    work_begins()
    if program is None:
        from paddock.smoke.runner import worker

        program = worker.program("cpu", options.python)
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    without_gpus = Inventory(taken_at, host_machine.machine(), "none")
    notes = (_ON_CPU,) if program else ()
    report = MachineVerdict(taken_at, without_gpus.machine.name, options.tier, (processor(),), (), notes)
    return _worked(report, without_gpus, (), options, notify, program, loading, environ, learned)


def _worked(
    report: MachineVerdict,
    machine: Inventory,
    chosen: Sequence[Target],
    options: Options,
    notify: Notify,
    program: Sequence[str] | None,
    loading: float | None,
    environ: Mapping[str, str],
    learned: Mapping[str, Mapping[str, float]],
) -> MachineVerdict:
    """Return the report with the stages of tiers 2 and 3, whose code the first tier does not wait for."""
    from paddock.children import Children
    from paddock.smoke.runner.rounds import Rounds
    from paddock.smoke.runner.worker import LOADING, Workers
    from paddock.smoke.stages import table

    added: list[StageResult] = []

    def add(result: StageResult) -> None:
        added.append(result)
        notify(result)

    children = Children()
    rounds = Rounds(
        table.stages(options.tier, options.soak),
        Workers(program, children, LOADING if loading is None else loading) if program else None,
        children,
        environ,
        learned,
        add,
    )
    complete = True
    try:
        if machine.gpus:
            rounds.test_gpus(chosen, machine, reported.unfit(report.stages))
        else:
            rounds.test_processor(report.devices[0])
    except KeyboardInterrupt:
        complete = False
    return replace(report, tier=options.tier, stages=(*report.stages, *added), complete=complete)


def _hanging(error: DriverHangs, notify: Notify) -> MachineVerdict:
    """Return the report on a machine whose driver does not answer: nothing of it can be tested."""
    health = hanging(error)
    result = next(iter(reported.from_findings(health)))
    notify(result)
    return MachineVerdict(health.taken_at, health.machine, 1, (), (result,))


def expect(named: str | None, instance_type: Callable[[], str | None], machine: Inventory) -> Expectation:
    """Return what should be here. A container may have been given some of the machine's GPUs alone.

    Raises GpuInputError for a type that the catalogue does not have, if the user named it.
    """
    if named is not None and named.isdecimal():
        return Expectation(HealthContext(expect=int(named)))
    name = named or instance_type()
    if name is None:
        return Expectation(HealthContext())
    try:
        context = expected(name)
    except GpuInputError:
        if named is not None:
            raise
        note = f"this is {name}, which is not in the catalogue: --expect N says how many GPUs it has"
        return Expectation(HealthContext(), note=note)
    if named is None and machine.machine.container:
        context = replace(context, expect=None)
    note = "" if named else f"this is {name}, by the instance metadata; --expect overrides it"
    return Expectation(context, _fraction(name), note)


def _fraction(name: str) -> float:
    from paddock.catalog import instance

    return instance(name).gpu_fraction


def _learned(folder: Path | None, chosen: Sequence[Target]) -> dict[str, dict[str, float]]:
    """Return what was learned of the devices. Raises SmokeInputError for a file that is not valid."""
    uuids = [target.device.uuid for target in chosen]
    return {uuid: baselines.read(folder, uuid) for uuid in (*uuids, "all")} if folder else {}
