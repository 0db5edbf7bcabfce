"""The picture of the fleet: each pool with its nodes, each node with its GPUs, and the jobs that fill them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from paddock.plan.document.model import Fit, Instance, PlanDocument, Pool
from paddock.plan.output.format import cores, count, gibibytes
from paddock.plan.output.html.markup import Child, Html, join, rect, svg, tag
from paddock.plan.output.view import alike, gpu_memory, lack, largest_gpus

PALETTE = 12
"""Colours of runners, in the style sheet: on each of them white text reads well, and each stands out on both themes."""
WIDTH = 264
_GAP = 4
_ROW = 26
_NARROWEST = 5
_MOST_SHARES = 96
"""More shares of a node than this are told by number."""
_MOST_NODES = 48
"""More nodes of a pool than this are told by number."""
_CAPACITY = {"spot": "spot", "on-demand": "on-demand", "reserved": "reserved", "capacity-block": "capacity block"}


def colours(document: PlanDocument) -> dict[str, int]:
    """Return each runner's place in the palette: no two of a pool share one while the palette lasts."""
    by_pool: dict[str, set[int]] = {}
    palette: dict[str, int] = {}
    for index, runner in enumerate(document.runners):
        used = by_pool.setdefault(runner.pool, set())
        free = (place % PALETTE for place in range(index, index + PALETTE) if place % PALETTE not in used)
        palette[runner.name] = next(free, index % PALETTE)
        used.add(palette[runner.name])
    return palette


def picture(document: PlanDocument, palette: Mapping[str, int]) -> Html:
    """Return all pools, one below the other."""
    fits: dict[str, list[Fit]] = {}
    for fit in document.fit:
        fits.setdefault(fit.pool, []).append(fit)
    cards = [_card(pool, fits.get(pool.name, ()), palette) for pool in document.pools]
    if not cards:
        return tag("p", "This stack has no GPU pools.", class_="note")
    return join(_key(), tag("div", cards, class_="pools"))


def shapes(document: PlanDocument) -> Html:
    """Return the shapes that drawings share: the hatching of stranded GPUs, and nodes at a glance."""
    stripe = tag("path", d="M-1 7 7 -1M-1 1 1 -1M5 7 7 5", class_="stripe")
    pattern = tag("pattern", stripe, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse")
    sizes = sorted({max((instance.gpus for instance in pool.instances), default=1) for pool in document.pools})
    return tag(
        "svg",
        tag("defs", pattern, [_mini(gpus) for gpus in sizes]),
        width=0,
        height=0,
        class_="unseen",
        aria_hidden="true",
        focusable="false",
    )


def swatch(colour: int) -> Html:
    return tag("i", class_=f"swatch c{colour}", aria_hidden="true")


def _key() -> Html:
    def sample(*shapes: Child, words: str) -> Html:
        return tag("li", tag("svg", *shapes, width=22, height=14, aria_hidden="true"), words)

    return tag(
        "ul",
        sample(rect(0, 0, 22, 14, "gpu"), rect(2, 2, 18, 10, "job c0"), words="a job on a GPU, one colour a runner"),
        sample(rect(0, 0, 22, 14, "gpu"), words="a GPU with nothing on it"),
        sample(rect(0, 0, 22, 14, "stranded"), words="stranded: no further job of this runner can use it"),
        sample(rect(0, 4, 22, 6, "track"), rect(0, 4, 15, 6, "job c0"), words="CPU and memory that jobs take"),
        class_="key",
    )


def _card(pool: Pool, fits: Sequence[Fit], palette: Mapping[str, int]) -> Html:
    drawn = [
        _node(pool, instance, [fit for fit in fits if fit.instance == instance.name], palette)
        for instance in pool.instances
    ]
    return tag(
        "article",
        tag("header", tag("h3", pool.name), _facts(pool)),
        tag("div", _scale(pool), tag("div", drawn, class_="nodes")),
        class_="pool",
        aria_label=f"pool {pool.name}",
    )


def _facts(pool: Pool) -> Html:
    memory = f" \u00b7 {gpu_memory(pool)}" if gpu_memory(pool) else ""
    capacity = " then ".join(_CAPACITY.get(kind, kind) for kind in pool.capacity) or "nodes that exist already"
    lines = [
        tag("p", tag("strong", pool.gpu.name), memory) if pool.gpu.name else None,
        tag("p", tag("span", capacity, class_="badge")),
        tag("p", f"{pool.reservation}", class_="note") if pool.reservation else None,
        tag("p", f"GPUs shared by {pool.sharing}") if pool.sharing else None,
        tag("p", ", ".join(pool.zones), class_="note") if pool.zones else None,
        tag("p", pool.image, class_="note") if pool.image else None,
    ]
    return join(lines)


def _scale(pool: Pool) -> Html | None:
    """Return the pool from its least to its most nodes, each with its GPUs."""
    if not pool.nodes.max:
        return None
    gpus = max((instance.gpus for instance in pool.instances), default=1)
    width, height = _mini_size(gpus)
    drawn = min(pool.nodes.max, _MOST_NODES)
    minis = [
        tag(
            "svg",
            tag("use", href=f"#node-{gpus}"),
            width=width,
            height=height,
            class_="mini on" if index < pool.nodes.min else "mini",
            aria_hidden="true",
        )
        for index in range(drawn)
    ]
    least = f"{pool.nodes.min}\u2013" if pool.nodes.min != pool.nodes.max else ""
    nodes = f"{least}{count(pool.nodes.max, 'node')}"
    more = f" ({drawn} drawn)" if drawn < pool.nodes.max else ""
    words = f"{nodes}{more}, up to {count(largest_gpus(pool), 'GPU')}"
    return tag("div", tag("p", words), tag("div", minis, class_="minis"), class_="scale")


def _mini(gpus: int) -> Html:
    """Return a node at a glance, to be repeated: a frame and a square for each GPU."""
    (width, height), across = _mini_size(gpus), _across(gpus)
    chips = "".join(f"M{3 + i % across * 7} {3 + i // across * 7}h5v5h-5z" for i in range(gpus))
    return tag(
        "symbol",
        rect(0.5, 0.5, width - 1, height - 1, "frame"),
        tag("path", d=chips, class_="chip"),
        id=f"node-{gpus}",
        viewBox=f"0 0 {width} {height}",
    )


def _mini_size(gpus: int) -> tuple[int, int]:
    return _across(gpus) * 7 + 4, ceil(max(1, gpus) / _across(gpus)) * 7 + 4


def _across(gpus: int) -> int:
    return max(1, gpus) if gpus <= 4 else ceil(gpus / 2)


def _node(pool: Pool, instance: Instance, fits: Sequence[Fit], palette: Mapping[str, int]) -> Html:
    lanes = [_lane(instance, same, palette) for same in alike(fits)]
    if not lanes:
        cells = svg(f"{count(instance.gpus, 'GPU')}, no runner", WIDTH, _ROW, *_empty(instance))
        lanes = [tag("div", tag("p", "no runner uses this pool", class_="note"), cells, class_="lane")]
    size = f"{instance.vcpus} vCPU \u00b7 {gibibytes(instance.memory)}"
    return tag(
        "figure",
        tag("figcaption", tag("b", instance.name), " ", tag("span", size, class_="note")),
        tag("div", lanes, class_="lanes"),
        aria_label=f"node {instance.name}",
        class_="alone" if len(pool.instances) == 1 else None,
    )


def _lane(instance: Instance, same: Sequence[Fit], palette: Mapping[str, int]) -> Html:
    """Return a node filled with the jobs of a runner; `same` are its fit and those of runners that take as much."""
    fit, colour = same[0], palette.get(same[0].runner, 0)
    jobs, stranded = fit.per_node, fit.stranded_gpus
    who = [tag("span", swatch(palette.get(other.runner, 0)), other.runner, class_="who") for other in same]
    title = tag("p", who, _jobs(jobs, stranded), class_="line")
    if not jobs:
        cells = svg(f"{fit.runner} does not fit on {instance.name}", WIDTH, _ROW, *_empty(instance, "gpu none"))
        return tag("div", title, cells, tag("p", "lacks ", lack(fit), class_="bad"), class_="lane misfit")
    label = (
        f"{instance.name} filled by {count(jobs, 'job')} of {fit.runner}, {count(instance.gpus, 'GPU')}"
        f"{f', {stranded:g} stranded' if stranded else ''}"
    )
    request, available = fit.request, fit.available
    cpu, memory = request.cpu * jobs, request.memory * jobs
    grid = _Grid(instance)
    top = grid.rows * (_ROW + _GAP)
    return tag(
        "div",
        title,
        svg(
            label,
            WIDTH,
            top + 32,
            *_filled(grid, colour, jobs, max(1, request.gpus)),
            *_meter(
                top + 4, "CPU", _ratio(cpu, available.cpu), f"{cores(cpu, 1)} of {cores(available.cpu, 1)}", colour
            ),
            *_meter(
                top + 19,
                "RAM",
                _ratio(memory, available.memory),
                f"{memory / 1024:,.0f} of {gibibytes(available.memory)}",
                colour,
            ),
        ),
        class_="lane",
    )


def _jobs(jobs: int, stranded: float) -> Html:
    if not jobs:
        return tag("strong", "\u2717 does not fit", class_="bad")
    stranded_text = tag("span", f" \u00b7 {stranded:g} stranded", class_="warn") if stranded else None
    return tag("span", count(jobs, "job"), stranded_text)


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
        return index % self.across * (self.width + _GAP), index // self.across * (_ROW + _GAP)

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


def _empty(instance: Instance, class_: str = "gpu") -> Iterator[Html]:
    grid = _Grid(instance)
    if grid.rows > 1:  # nothing to tell apart
        yield rect(0.5, 0.5, WIDTH - 1, _ROW - 1, class_, 4)
        return
    for index in range(grid.gpus):
        x, y = grid.gpu(index)
        yield rect(x + 0.5, y + 0.5, grid.width - 1, _ROW - 1, class_, 4)


def _filled(grid: _Grid, colour: int, jobs: int, gpus_per_job: int) -> Iterator[Html]:
    for index in range(grid.gpus):
        x, y = grid.gpu(index)
        yield rect(x + 0.5, y + 0.5, grid.width - 1, _ROW - 1, "gpu", 4)
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
                yield rect(x + inset, y + 2.5, width - 2 * inset, _ROW - 5, f"job c{colour}", 3)
        x, y, width = boxes[0]
        width = min(width, grid.width) if grid.shares == 1 else width
        if width - 2 * inset >= 7 * len(str(job + 1)) + 2:
            yield _number(x + width / 2, y + _ROW / 2 + 4, str(job + 1))
    unused = grid.gpus * grid.shares - jobs * gpus_per_job
    for first in range(jobs * gpus_per_job, jobs * gpus_per_job + unused) if grid.shares == 1 else ():
        x, y = grid.gpu(first)
        yield rect(x + 2.5, y + 2.5, grid.width - 5, _ROW - 5, "stranded", 3)
    for x, y, width in grid.span(jobs * gpus_per_job, unused) if grid.shares > 1 else ():
        yield rect(x + inset, y + 2.5, width - 2 * inset, _ROW - 5, "stranded", 3)


def _chained(grid: _Grid, colour: int, first: int, gpus: int) -> Iterator[Html]:
    """Return one job on several GPUs: its cells, and a bond between adjacent cells."""
    for x, y, width in grid.span(first, gpus):
        yield rect(x + 8, y + _ROW / 2 - 3, width - 16, 6, f"job c{colour}", 0)
    for index in range(first, first + gpus):
        x, y = grid.gpu(index)
        yield rect(x + 2.5, y + 2.5, grid.width - 5, _ROW - 5, f"job c{colour}", 3)


def _summed(grid: _Grid, colour: int, jobs: int, gpus_per_job: int) -> Iterator[Html]:
    """Too many to draw one by one: how much of the node is taken."""
    share = min(1.0, jobs * gpus_per_job / (grid.gpus * grid.shares))
    height = grid.rows * (_ROW + _GAP) - _GAP
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
