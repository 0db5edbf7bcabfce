"""A table of the GPUs that is drawn anew with every sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from paddock.gpu.model import Gpu
from paddock.gpu.monitoring.sampling import Metric, Sample

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_NO_NEWS = frozenset({"idle", "application-clocks"})
"""Reasons of low clocks that are none."""
_NAME = 24


def shown(samples: Iterable[Sample], metrics: Sequence[Metric], console: Console) -> Iterator[Sample]:
    """Passes the samples on. The last table stays on the terminal, also after Ctrl-C."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        for sample in samples:
            live.update(table(sample, metrics), refresh=True)
            yield sample


def table(sample: Sample, metrics: Sequence[Metric]) -> Text:
    """One line a GPU. As text: rich's own table takes eight times as long to lay out, once a second."""
    from rich.text import Text

    heads = [f"{metric.name.replace('_', ' ')} {metric.unit}" for metric in metrics]
    first = f"{'GPU':>3}  {'name':{_NAME}}  {'  '.join(heads)}  slowed down by"
    drawn = Text(f"{sample.at:.0f} s\n{first}\n", no_wrap=True, overflow="ellipsis")
    for gpu in sample.gpus:
        values = [_cell(metric.of(gpu), len(head)) for metric, head in zip(metrics, heads, strict=True)]
        drawn.append(f"{gpu.index:>3}  {(gpu.name or '-')[:_NAME]:{_NAME}}  {'  '.join(values)}  {_state(gpu)}\n")
        if gpu.state != "ok":
            drawn.stylize("red", len(drawn) - len(_state(gpu)) - 1)
    return drawn


def _cell(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.0f}':>{width}}"


def _state(gpu: Gpu) -> str:
    if gpu.state != "ok":
        return f"{gpu.state}: {gpu.reason or 'no reason is told'}"
    return ", ".join(reason for reason in gpu.throttle or () if reason not in _NO_NEWS)
