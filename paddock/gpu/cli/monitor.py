"""Sampling the GPUs on the console: a table that is lines anew with every sample, or a line of JSON each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any

from paddock.gpu.host.bounded import in_thread
from paddock.gpu.model import Gpu
from paddock.gpu.monitoring import sampling
from paddock.gpu.monitoring.sampling import Metric, Sample
from paddock.terminal import JsonOutput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_NO_NEWS = frozenset({"idle", "application-clocks"})
"""Reasons of low clocks that need no attention."""
_NAME = 24


def stream(parameters: Any, *, json: JsonOutput) -> int:
    """Sample until the duration is over, or Ctrl-C; then print the summary. Raises NoGpu and GpuInputError.

    A table on a terminal; elsewhere, and with `--json`, a line of JSON for each sample. A file gets the same lines.
    """
    from paddock.gpu import inventory, serialization
    from paddock.gpu.actions import text
    from paddock.gpu.monitoring.summary import watch

    metrics = sampling.select_metrics(parameters.metrics)
    duration = parameters.duration if "duration" in parameters.specified else None
    samples = sampling.monitor(parameters.interval, duration, parameters.metrics)
    plain, lines = json.replaces_text or not sys.stdout.isatty(), list[str]()
    if not plain:
        from paddock.terminal import console

        samples = draw(samples, metrics, console())

    def write(record: dict[str, Any]) -> None:
        line = f"{dumps(record)}\n"
        if plain:
            sys.stdout.write(line)
            sys.stdout.flush()
        if json.path is not None:
            lines.append(line)

    summary = watch(
        samples,
        metrics,
        show=lambda sample: write(sampling.record(sample, metrics)),
        read_inventory=lambda: in_thread(lambda: inventory.inventory(topology=True)),
    )
    write({"summary": serialization.data(summary)})
    if json.path is not None and not json.replaces_text:
        json.write_text("".join(lines))
    if not plain:
        sys.stdout.writelines(f"{line}\n" for line in text.summary(summary))
    return 0


def draw(samples: Iterable[Sample], metrics: Sequence[Metric], console: Console) -> Iterator[Sample]:
    """Pass the samples on and draw each. The last table stays on the terminal, also after Ctrl-C."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        for sample in samples:
            live.update(table(sample, metrics), refresh=True)
            yield sample


def table(sample: Sample, metrics: Sequence[Metric]) -> Text:
    """Build one line a GPU. As text: rich's own table takes eight times as long to lay out, once a second."""
    from rich.text import Text

    heads = [f"{metric.name.replace('_', ' ')} {metric.unit}" for metric in metrics]
    first = f"{'GPU':>3}  {'name':{_NAME}}  {'  '.join(heads)}  slowed down by"
    lines = Text(f"{sample.at:.0f} s\n{first}\n", no_wrap=True, overflow="ellipsis")
    for gpu in sample.gpus:
        values = [_cell(metric.of(gpu), len(head)) for metric, head in zip(metrics, heads, strict=True)]
        lines.append(f"{gpu.index:>3}  {(gpu.name or '-')[:_NAME]:{_NAME}}  {'  '.join(values)}  {_state(gpu)}\n")
        if gpu.state != "ok":
            lines.stylize("red", len(lines) - len(_state(gpu)) - 1)
    return lines


def _cell(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.0f}':>{width}}"


def _state(gpu: Gpu) -> str:
    if gpu.state != "ok":
        return f"{gpu.state}: {gpu.reason or 'no reason is known'}"
    return ", ".join(reason for reason in gpu.throttle or () if reason not in _NO_NEWS)
