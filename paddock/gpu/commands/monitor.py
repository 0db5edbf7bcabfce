"""`gpu.monitor`: watch the GPUs and report what slows them, or give their metrics to Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import Flag, Parameters, parameter
from paddock.console.table import table
from paddock.console.watch import Screen
from paddock.duration import Seconds
from paddock.gpu.report import ValueReport

if TYPE_CHECKING:
    from paddock.gpu.model import Gpu
    from paddock.gpu.monitoring.sampling import Metric, Sample
    from paddock.gpu.monitoring.summary import Summary

_NO_NEWS = frozenset({"idle", "application-clocks"})
"""Reasons of low clocks that need no attention."""


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(Parameters):
    """Parameters of `gpu.monitor`."""

    interval: float = parameter(1.0, "time between samples", unit=Seconds, ge=0.1, le=60)
    duration: float = parameter(
        10.0,
        "seconds in all",
        flag=Flag("duration", "time after which it ends; by default with Ctrl-C", absent=None),
        unit=Seconds,
        gt=0,
        le=3600,
    )
    metrics: tuple[str, ...] = parameter(
        (), "what to sample; by default utilisation, memory, temperature, power and sm_clock",
        flag=Flag("metrics", "what to sample; an unknown name lists them"),
    )  # fmt: skip
    export: bool = parameter(
        False, "serve metrics and health for Prometheus, under the names of NVIDIA's DCGM exporter", only="flags"
    )
    file: Path | None = parameter(
        None, "with --export: write this .prom file once, for node_exporter, instead of serving", only="flags",
        writes=True,
    )  # fmt: skip
    host: str = parameter(
        "127.0.0.1", "with --export: the address to serve on; every client that reaches it can read it", only="flags"
    )
    port: int = parameter(9400, "with --export: the port to serve on", only="flags", ge=0)


@dataclass(frozen=True, kw_only=True)
class MonitorReport(ValueReport):
    """Findings of the samples: the spread of each metric, the energy, and what slows the GPUs."""

    value: Summary

    def text(self) -> Iterator[str]:
        summary = self.value
        yield f"{summary.samples} samples in {summary.seconds:.0f} s{f': {summary.ended}' if summary.ended else ''}"
        for gpu in summary.gpus:
            spreads = (f"{item.metric} {item.mean:.0f} (at most {item.max:.0f}) {item.unit}" for item in gpu.metrics)
            energy = "" if gpu.energy is None else f", {gpu.energy / 3600:.1f} Wh"
            yield f"GPU {gpu.index}: {', '.join(spreads)}{energy}"
        for insight in summary.insights:
            yield f"{insight.severity}: {insight.text}"


def report(parameters: MonitorOptions) -> MonitorReport:
    """Sample for the duration, and print nothing. Raises NoGpu and GpuInputError."""
    from paddock.gpu.monitoring import sampling
    from paddock.gpu.monitoring.summary import watch

    samples = sampling.monitor(parameters.interval, parameters.duration, parameters.metrics)
    return MonitorReport(value=watch(samples, sampling.select_metrics(parameters.metrics)))


@command()
def monitor(parameters: MonitorOptions) -> int:
    """Sample until the duration is over, or Ctrl-C; then print the summary. Raises NoGpu, GpuInputError and BadFlag.

    A table on a terminal; elsewhere, and with `--json`, a line of JSON for each sample. A file gets the same lines.
    """
    others = {"interval", "duration", "metrics"} if parameters.export else {"file", "host", "port"}
    given = [name for name in sorted(others & parameters.specified) if getattr(parameters, name) is not None]
    if parameters.export and parameters.json.path:
        given.append("json")
    if given:
        way = "belongs to samples, and --export takes none" if parameters.export else "belongs to --export"
        raise BadFlag(f"--{given[0]} {way}\n    expected: one of both\n    fix: leave one of them out")
    if parameters.export:
        _export(parameters)
        return 0

    from paddock.gpu import inventory
    from paddock.gpu.host.bounded import in_thread
    from paddock.gpu.monitoring import sampling
    from paddock.gpu.monitoring.summary import watch

    json, metrics = parameters.json, sampling.select_metrics(parameters.metrics)
    samples = sampling.monitor(parameters.interval, parameters.duration, parameters.metrics)
    screen = Screen() if sys.stdout.isatty() and not json.replaces_text else None
    lines = list[str]()

    def write(record: dict[str, Any]) -> None:
        line = f"{dumps(record)}\n"
        if screen is None:
            sys.stdout.write(line)
            sys.stdout.flush()
        if json.path is not None:
            lines.append(line)

    def show(sample: Sample) -> None:
        if screen is not None:
            screen.show(drawn(sample, metrics))
        write(sampling.record(sample, metrics))

    result = MonitorReport(
        value=watch(
            samples, metrics, show=show, read_inventory=lambda: in_thread(lambda: inventory.inventory(topology=True))
        )
    )
    write({"summary": result.document()})
    if json.path is not None and not json.replaces_text:
        json.write_text("".join(lines))
    if screen is not None:
        sys.stdout.writelines(f"{line}\n" for line in result.text())
    return 0


def drawn(sample: Sample, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a sample as a table of one line a GPU."""
    from paddock.gpu.views.gpus import amount, state

    heads = [f"{metric.name.replace('_', ' ')} {metric.unit}" for metric in metrics]
    rows = []
    for gpu in sample.gpus:
        first = (str(gpu.index), gpu.name or "-")
        if gpu.state == "ok":
            rows.append((*first, *(amount(metric.of(gpu)) for metric in metrics), _slowed_by(gpu)))
        else:
            rows.append((*first, state(gpu)))
    yield f"{sample.at:.0f} s"
    yield from table(
        ("GPU", "name", *heads, "slowed down by"), rows, right=("GPU", *heads), drop=("name", *reversed(heads))
    )


def _slowed_by(gpu: Gpu) -> str:
    return ", ".join(reason for reason in gpu.throttle or () if reason not in _NO_NEWS)


def _export(parameters: MonitorOptions) -> None:
    """Write the metrics to a file for node_exporter, or serve them until Ctrl-C. Raises GpuInputError."""
    from paddock.gpu.monitoring.prometheus import Exporter, Server, write

    if parameters.file is not None:
        write(parameters.file, Exporter().text())
        return
    with Server(Exporter(), parameters.host, parameters.port) as server, suppress(KeyboardInterrupt):
        sys.stderr.write(f"metrics at {server.url}; Ctrl-C ends it\n")
        server.serve_forever()
