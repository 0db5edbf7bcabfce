"""What `inv gpu.cuda-info`, `health`, `monitor`, `export`, `reset` and `render` print, without Invoke."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.actions import documents
from paddock.gpu.cli.inventory import said, write_json, write_lines
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import Inventory

if TYPE_CHECKING:
    from paddock.gpu.health.check import Health
    from paddock.gpu.health.rules import HealthContext
    from paddock.gpu.monitoring.summary import Summary

_LONGEST_HOURS = 24 * 365


def cuda_info(toolkit: str = "", source: Path | None = None, *, as_json: bool = False) -> None:
    """What CUDA this machine runs, or whether it runs the one that is named. Raises GpuInputError."""
    from paddock.gpu.health.cuda import evaluate

    found = serialization.load(source) if source else detect.inventory(programs=True)
    told = evaluate(found, toolkit or None)
    if as_json:
        write_json(documents.cuda(found, told))
        return
    lines = [f"driver   {found.driver.version}, speaks CUDA {found.driver.cuda}"] if found.driver else []
    if found.toolkit:
        lines.append(f"toolkit  {found.toolkit.version} in {found.toolkit.path}")
    lines.append(f"{told.verdict}: {told.why}")
    write_lines([*lines, *(f"    fix: {fix.text}" for fix in told.fixes)])


def health(
    source: Path | None = None,
    *,
    expect: int = 0,
    instance: str = "",
    idle: bool = False,
    since_hours: float = 0,
    as_json: bool = False,
) -> int:
    """The verdict on this machine, or on a saved inventory.

    Its exit code is 0 healthy, 1 degraded, 2 unhealthy or unknown. Raises GpuInputError.
    """
    from paddock.gpu.health.check import check, evaluate

    if not 0 <= since_hours <= _LONGEST_HOURS:
        raise GpuInputError(
            f"{since_hours:g} hours are no time\n    expected: 0 to {_LONGEST_HOURS}\n    fix: --since-hours 2"
        )
    around = _around(expect, instance, idle)
    if source is None:
        found = check(context=around, since=timedelta(hours=since_hours) if since_hours else None)
    else:
        found = evaluate(serialization.load(source), (), around, ("Xids: a saved inventory holds no kernel log",))
    if as_json:
        write_json(serialization.data(found))
    else:
        write_lines(_verdict(found))
    return found.exit_code


def _around(expect: int, instance: str, idle: bool) -> HealthContext:
    from paddock.gpu.health.check import expected
    from paddock.gpu.health.rules import HealthContext

    if expect < 0:
        raise GpuInputError(f"{expect} GPUs cannot be expected\n    expected: 1 or more\n    fix: --expect 8")
    if instance == "imds":
        from paddock.gpu.host import imds

        instance = imds.instance_type()
    found = expected(instance) if instance else HealthContext()
    return replace(found, expect=expect or found.expect, idle=idle)


def _verdict(found: Health) -> Iterator[str]:
    yield f"{found.machine} is {found.verdict}" + ("" if found.action == "none" else f": {found.action}")
    for finding in found.findings:
        where = f"GPU {finding.index}" if finding.index is not None else "machine"
        yield f"  {finding.severity}  {where}  {finding.id}: {finding.evidence.removeprefix(f'{where}: ')}"
        if finding.fix:
            yield f"    fix: {finding.fix}"
    for text in found.unchecked:
        yield f"  not checked: {text}"


def monitor(*, interval: float, duration: float, metrics: str, as_json: bool = False) -> None:
    """Samples until `duration` seconds are over, 0 being for ever, or Ctrl-C; then what they show together.

    A table on a terminal; elsewhere, and with `as_json`, a line of JSON a sample. Raises NoGpu and GpuInputError.
    """
    from paddock.gpu.monitoring import sampling as watching
    from paddock.gpu.monitoring.summary import watch

    names = tuple(name.strip() for name in metrics.split(",") if name.strip())
    chosen = watching.select_metrics(names)
    with said(as_json):
        samples: Any = watching.monitor(interval, duration or None, names)
    plain = as_json or not sys.stdout.isatty()
    if not plain:
        from paddock.gpu.cli.monitor_view import shown
        from paddock.terminal import console

        samples = shown(samples, chosen, console())

    def line(sample: watching.Sample) -> None:
        sys.stdout.write(f"{json.dumps(watching.record(sample, chosen))}\n")
        sys.stdout.flush()

    told = watch(samples, chosen, show=line if plain else None, read_inventory=lambda: detect.inventory(topology=True))
    if plain:
        sys.stdout.write(f"{json.dumps({'summary': serialization.data(told)})}\n")
    else:
        write_lines(_summary(told))


def _summary(told: Summary) -> Iterator[str]:
    yield f"{told.samples} samples in {told.seconds:.0f} s{f': {told.ended}' if told.ended else ''}"
    for gpu in told.gpus:
        spreads = (f"{each.metric} {each.mean:.0f} (at most {each.max:.0f}) {each.unit}" for each in gpu.metrics)
        energy = "" if gpu.energy is None else f", {gpu.energy / 3600:.1f} Wh"
        yield f"GPU {gpu.index}: {', '.join(spreads)}{energy}"
    for insight in told.insights:
        yield f"{insight.severity}: {insight.text}"


def export(*, file: Path | None, host: str, port: int) -> None:
    """Writes the metrics to a file for node_exporter, or serves them until Ctrl-C. Raises GpuInputError."""
    from paddock.gpu.monitoring.prometheus import Exporter, Server, write

    if file is not None:
        write(file, Exporter().text())
        return
    with Server(Exporter(), host, port) as server, suppress(KeyboardInterrupt):
        sys.stderr.write(f"metrics at {server.url}; Ctrl-C ends it\n")
        server.serve_forever()


def reset(which: str, *, soft: bool = False, yes: bool = False, as_json: bool = False) -> bool:
    """Shows what a reset would do, and with `yes` does it. Returns whether it can be done, or was.

    Raises NoGpu, GpuInputError and GpuError.
    """
    from paddock.gpu.health.reset import execute, plan_for
    from paddock.gpu.leases.manager import Leases

    found = _whole()
    with said(as_json):
        made = plan_for(found, documents.pick(found, which), Leases().held(), kind="soft" if soft else "full")
    if not yes or made.refused:
        if as_json:
            write_json({**serialization.data(made), "done": False})
        else:
            lines = [f"refused: {why}" for why in made.refused] or [step.what for step in made.steps]
            todo = [] if made.refused else ["nothing was done; --yes does it"]
            write_lines([*lines, *(f"note: {note}" for note in made.notes), *todo])
        return not made.refused
    result = execute(made, _whole, Leases().held)
    if as_json:
        write_json({**serialization.data(result), "done": result.ok})
    else:
        write_lines(f"{'done' if each.code == 0 else f'failed ({each.code})'}: {each.step}" for each in result.outcomes)
    return result.ok


def _whole() -> Inventory:
    return detect.inventory(processes=True, topology=True)


def render(
    target: str,
    *,
    wanted: dict[str, Any] | None,
    fields: Path | None = None,
    source: Path | None = None,
    options: Sequence[str] = (),
    output: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Prints a target's configuration, or writes its files into `output`. `fields` is a JSON file of the connector's.

    Raises NoGpu, GpuInputError and GpuError.
    """
    from paddock.gpu import render as rendering
    from paddock.gpu.actions.handlers import configuration

    given = _fields(fields) if fields else wanted
    own = rendering.options(target, options)
    with said(as_json):
        rendered = configuration(target, given, own, source=serialization.load(source) if source else None)
    for kind, texts in (("note", rendered.notes), ("warning", rendered.warnings)):
        for text in () if as_json else texts:
            sys.stderr.write(f"{kind}: {text}\n")
    if output is not None:
        for path in rendering.write(rendered, output, force):
            sys.stderr.write(f"wrote {path}\n")
    if as_json:
        sys.stdout.write(f"{json.dumps(rendering.to_document(rendered), indent=2)}\n")
    elif output is None:
        for number, file in enumerate(rendered.files):
            head = f"{'' if not number else chr(10)}# {file.path}\n" if len(rendered.files) > 1 else ""
            sys.stdout.write(f"{head}{file.text}")


def _fields(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GpuInputError(f"cannot read {path}: {error.strerror}\n    fix: name a JSON file of fields") from None
    except ValueError as error:
        raise GpuInputError(f"{path} is no JSON: {error}\n    expected: an object of fields") from None
    if not isinstance(found, dict):
        raise GpuInputError(f"{path} holds no object\n    expected: fields and their values in braces")
    return found
