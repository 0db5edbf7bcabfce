"""Drawing of a node: its GPUs, the jobs on them, and the CPU and memory that the jobs take."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from paddock.html.markup import Html, rect, tag
from paddock.plan.document.model import Fit, Instance
from paddock.plan.output.format import cores, gibibytes

WIDTH = 264
ROW = 26
_GAP = 4
_NARROWEST = 5
_MOST_SHARES = 96
"""More shares of a node than this are shown as a number."""


def height(instance: Instance) -> int:
    """Return the height of a node with jobs."""
    return _Grid(instance).rows * (ROW + _GAP) + 32


def node(instance: Instance, fit: Fit, colour: int) -> Iterator[Html]:
    """Yield a node that is full of a runner's jobs."""
    jobs, request, available = fit.per_node, fit.request, fit.available
    cpu, memory = request.cpu * jobs, request.memory * jobs
    grid = _Grid(instance)
    top = grid.rows * (ROW + _GAP)
    memory_words = f"{memory / 1024:,.0f} of {gibibytes(available.memory)}"
    yield from _filled(grid, colour, jobs, max(1, request.gpus))
    yield from _meter(
        top + 4, "CPU", _ratio(cpu, available.cpu), f"{cores(cpu, 1)} of {cores(available.cpu, 1)}", colour
    )
    yield from _meter(top + 19, "RAM", _ratio(memory, available.memory), memory_words, colour)


def empty_node(instance: Instance, class_: str = "gpu") -> Iterator[Html]:
    """Yield the GPUs of a node without jobs."""
    grid = _Grid(instance)
    if grid.rows > 1:  # nothing to tell apart
        yield rect(0.5, 0.5, WIDTH - 1, ROW - 1, class_, 4)
        return
    for index in range(grid.gpus):
        x, y = grid.gpu(index)
        yield rect(x + 0.5, y + 0.5, grid.width - 1, ROW - 1, class_, 4)


def small_node(gpus: int) -> list[Html]:
    """Return a node at a glance: a frame and a square for each GPU."""
    (width, height_), across = small_size(gpus), _across(gpus)
    chips = "".join(f"M{3 + i % across * 7} {3 + i // across * 7}h5v5h-5z" for i in range(gpus))
    return [rect(0.5, 0.5, width - 1, height_ - 1, "frame"), tag("path", d=chips, class_="chip")]


def small_size(gpus: int) -> tuple[int, int]:
    """Return the width and the height of a node at a glance."""
    return _across(gpus) * 7 + 4, ceil(max(1, gpus) / _across(gpus)) * 7 + 4


def _across(gpus: int) -> int:
    return max(1, gpus) if gpus <= 4 else ceil(gpus / 2)


def hatching() -> Html:
    """Return the pattern of stranded GPUs, for the definitions of a drawing."""
    stripe = tag("path", d="M-1 7 7 -1M-1 1 1 -1M5 7 7 5", class_="stripe")
    return tag("pattern", stripe, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse")


def _ratio(used: float, has: float) -> float:
    return min(1.0, used / has) if has > 0 else 0.0


class _Grid:
    """Places of the GPUs of a node and their shares: in rows, so that no share is too narrow to see."""

    def __init__(self, instance: Instance) -> None:
        self.gpus = max(1, instance.gpus)
        self.shares = max(1, (instance.shares or instance.gpus) // self.gpus)
        fits = int((WIDTH + _GAP) // (self.shares * _NARROWEST + _GAP))
        self.rows = ceil(self.gpus / max(1, min(self.gpus, fits, 16)))
        self.across = ceil(self.gpus / self.rows)
        self.width = (WIDTH + _GAP) / self.across - _GAP

    def gpu(self, index: int) -> tuple[float, float]:
        return index % self.across * (self.width + _GAP), index // self.across * (ROW + _GAP)

    def span(self, first: int, shares: int) -> Iterator[tuple[float, float, float]]:
        """Boxes (x, y, width) that cover `shares` from the `first` on, one a row."""
        step = self.width / self.shares
        at, end = first, first + shares
        while at < end:
            gpu, share = divmod(at, self.shares)
            stop = min(end, (gpu // self.across + 1) * self.across * self.shares)
            last_gpu, last_share = divmod(stop - 1, self.shares)
            (x, y), (last_x, _) = self.gpu(gpu), self.gpu(last_gpu)
            start = x + share * step
            yield start, y, last_x + (last_share + 1) * step - start
            at = stop


def _filled(grid: _Grid, colour: int, jobs: int, gpus_per_job: int) -> Iterator[Html]:
    for index in range(grid.gpus):
        x, y = grid.gpu(index)
        yield rect(x + 0.5, y + 0.5, grid.width - 1, ROW - 1, "gpu", 4)
    if jobs > _MOST_SHARES or jobs * gpus_per_job > grid.gpus * grid.shares:
        yield from _summed(grid, colour, jobs, gpus_per_job)
        return
    inset = 2.5 if grid.width / grid.shares > 8 else 1.5
    for job in range(jobs):
        boxes = list(grid.span(job * gpus_per_job, gpus_per_job))
        if grid.shares == 1 and gpus_per_job > 1:
            yield from _chained(grid, colour, job * gpus_per_job, gpus_per_job)
        else:
            for x, y, width in boxes:
                yield rect(x + inset, y + 2.5, width - 2 * inset, ROW - 5, f"job c{colour}", 3)
        x, y, width = boxes[0]
        width = min(width, grid.width) if grid.shares == 1 else width
        if width - 2 * inset >= 7 * len(str(job + 1)) + 2:
            yield _number(x + width / 2, y + ROW / 2 + 4, str(job + 1))
    unused = grid.gpus * grid.shares - jobs * gpus_per_job
    for first in range(jobs * gpus_per_job, jobs * gpus_per_job + unused) if grid.shares == 1 else ():
        x, y = grid.gpu(first)
        yield rect(x + 2.5, y + 2.5, grid.width - 5, ROW - 5, "stranded", 3)
    for x, y, width in grid.span(jobs * gpus_per_job, unused) if grid.shares > 1 else ():
        yield rect(x + inset, y + 2.5, width - 2 * inset, ROW - 5, "stranded", 3)


def _chained(grid: _Grid, colour: int, first: int, gpus: int) -> Iterator[Html]:
    """Return one job on several GPUs: its cells, and a bond between adjacent cells."""
    for x, y, width in grid.span(first, gpus):
        yield rect(x + 8, y + ROW / 2 - 3, width - 16, 6, f"job c{colour}", 0)
    for index in range(first, first + gpus):
        x, y = grid.gpu(index)
        yield rect(x + 2.5, y + 2.5, grid.width - 5, ROW - 5, f"job c{colour}", 3)


def _summed(grid: _Grid, colour: int, jobs: int, gpus_per_job: int) -> Iterator[Html]:
    """Too many to draw one by one: how much of the node is taken."""
    share = min(1.0, jobs * gpus_per_job / (grid.gpus * grid.shares))
    height = grid.rows * (ROW + _GAP) - _GAP
    yield rect(0, 0, WIDTH, height, "stranded", 4)
    yield rect(0, 0, WIDTH * share, height, f"job c{colour}", 4)
    yield _number(WIDTH / 2, height / 2 + 4, f"{jobs} jobs")


def _number(x: float, y: float, words: str) -> Html:
    return tag("text", words, x=x, y=y, text_anchor="middle", class_="on-job")


def _meter(y: float, name: str, share: float, label: str, colour: int) -> list[Html]:
    x, width = 30, 104
    return [
        tag("text", name, x=0, y=y + 9, class_="small"),
        rect(x, y + 3, width, 6, "track", 3),
        rect(x, y + 3, width * share, 6, f"job c{colour}", 3),
        tag("text", label, x=WIDTH, y=y + 9, text_anchor="end", class_="small"),
    ]
