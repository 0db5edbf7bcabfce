"""Diagrams of a fleet and of a job, in the colours of a plan's page. Their figures are those of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.html.drawing import MONOSPACE, drawing
from paddock.html.markup import Child, Html, rect, tag
from paddock.plan.document.model import PlanDocument
from paddock.plan.output.format import cores, count, gibibytes, money, words
from paddock.plan.output.html import node_drawing
from paddock.plan.output.view import capacity, cloud_resources

WIDTH = 960
_MARGIN, _ARROW = 20, 28
_RULES = f"""
.box {{ fill: var(--card); stroke: var(--line); }}
.group {{ fill: none; stroke: var(--dim); stroke-dasharray: 4 4; }}
.number {{ fill: var(--info); }}
.on-number {{ fill: var(--card); font-size: 12px; font-weight: 700; }}
.name {{ font-size: 15px; font-weight: 650; }}
.line {{ font-size: 12px; fill: var(--soft); }}
.code {{ font-size: 11.5px; font-family: {MONOSPACE}; fill: var(--ink); }}
.time {{ font-size: 12px; font-weight: 600; }}
.arrow {{ fill: none; stroke: var(--soft); stroke-width: 1.5; }}
.tip {{ fill: var(--soft); }}
.idle {{ fill: var(--track); }}
.start {{ fill: var(--stripe); }}
"""


@dataclass(frozen=True, slots=True)
class Station:
    """A box of a diagram: a name, and lines below it; a line in backquotes is code."""

    name: str
    lines: tuple[str, ...]
    works: bool = False
    """A job is drawn at the bottom, on its GPU."""


def path_of_a_job(document: PlanDocument) -> str:
    """Return how a job of the fleet's first runner comes to its GPU, and what is paid for of the time it takes."""
    stations = _job_stations(document)
    height = 296
    return _drawing(
        "The path of a job: GitHub, listener, runner pod, node, GPU",
        height,
        *_flow(stations, 20, 146),
        *_timeline(document, 184),
    )


def fleet_and_job(document: PlanDocument) -> str:
    """Return how a fleet file becomes resources, and below it how a job comes to a GPU of theirs."""
    return _drawing(
        "From the fleet file to AWS, and from GitHub to the GPU",
        398,
        tag("text", "Once, and after each change", x=_MARGIN, y=32, class_="name"),
        *_flow(_fleet_stations(document), 46, 122),
        tag("text", "For each job", x=_MARGIN, y=218, class_="name"),
        *_flow(_job_stations(document), 232, 146),
        _down(741, 170, 230),
    )


def _fleet_stations(document: PlanDocument) -> Sequence[Station]:
    pools, runners = document.pools, document.runners
    resources = cloud_resources(document)
    in_cluster = sum(resource.type.startswith("kubernetes:") for resource in resources)
    return (
        Station(
            f"Pulumi.{document.stack}.yaml",
            (
                "the fleet as a typed file:",
                f"{count(len(pools), 'pool')}, {count(len(runners), 'runner')};",
                "the rest has defaults",
            ),
        ),
        Station(
            "infra/program.py",
            ("an ordinary Pulumi program:", "every resource, label and", "taint derived from the file"),
        ),
        Station(
            "./inv plan", ("runs the same program here:", "fit, rules, cost, quotas,", "before anything is bought")
        ),
        Station(
            "pulumi up",
            (
                f"{count(len(resources) - in_cluster, 'resource')} in AWS,",
                f"{in_cluster} in the EKS cluster:",
                "node groups, ARC, drivers",
            ),
        ),
    )


def _job_stations(document: PlanDocument) -> Sequence[Station]:
    runner = document.runners[0]
    pool = next(pool for pool in document.pools if pool.name == runner.pool)
    instance = pool.instances[0]
    label = runner.name if runner.name in runner.labels else runner.labels[-1]
    return (
        Station("GitHub", ("queues the job", "`runs-on:", f"`[self-hosted, {label}]`")),
        Station("Listener", ("ARC's, in the cluster:", f"scale set {runner.name} takes", "the job, adds a pod")),
        Station(
            "Runner pod",
            (
                f"asks for {count(runner.gpus, 'GPU')},",
                f"{cores(runner.cpu)} cores, {gibibytes(runner.memory)},",
                "waits for room",
            ),
        ),
        Station("Node", (f"{instance.name},", f"{capacity(pool)}, bought by", "cluster-autoscaler")),
        Station("GPU", ("a hook checks it first", "and cleans it after"), works=True),
    )


def _flow(stations: Sequence[Station], top: float, height: float) -> Iterator[Html]:
    width = (WIDTH - 2 * _MARGIN - _ARROW * (len(stations) - 1)) / len(stations)
    for index, station in enumerate(stations):
        x = _MARGIN + index * (width + _ARROW)
        yield tag("g", *_box(station, width, height, index + 1), transform=f"translate({_short(x)} {top})")
        if index:
            yield from _right(x - _ARROW + 4, x - 4, top + height / 2)


def _box(station: Station, width: float, height: float, number: int) -> Iterator[Html]:
    yield rect(0.5, 0.5, width - 1, height - 1, "box", 10)
    yield tag("circle", cx=22, cy=24, r=10, class_="number")
    yield tag("text", str(number), x=22, y=28.5, text_anchor="middle", class_="on-number")
    yield tag("text", station.name, x=38, y=29, class_="name")
    y = 54
    for line in station.lines:
        code = line.startswith("`")
        # SVG folds spaces, and the second line of the code is indented.
        yield tag(
            "text",
            line.strip("`").replace(" ", "\u00a0") if code else line,
            x=12,
            y=y,
            class_="code" if code else "line",
        )
        y += 19
    if station.works:
        yield rect(12, y - 2, width - 24, node_drawing.ROW, "gpu", 4)
        yield rect(14.5, y + 0.5, width - 29, node_drawing.ROW - 5, "c0", 3)
        yield tag("text", "job", x=width / 2, y=y + 15, text_anchor="middle", class_="on-job")


def _timeline(document: PlanDocument, top: float) -> Iterator[Html]:
    """Yield the times of a job that waits for a new node, with what they cost."""
    if not document.cost:
        return
    runner = document.cost.runners[0]
    job, hosted = runner.job, runner.github_hosted
    start, idle = round(job.start_seconds.typical / 60), round(job.idle_seconds / 60)
    low, high = round(job.start_seconds.low / 60), round(job.start_seconds.high / 60)
    parts = (
        ("start", "start", f"{low}\u2013{high} min, typically {start}", 0.2),
        ("c0", "job", f"{words(job.minutes)} min", 0.5),
        ("idle", "idle", f"{idle} min without a job, then", 0.3),
    )
    x, width = float(_MARGIN), WIDTH - 2 * _MARGIN
    for class_, name, length, share in parts:
        yield rect(x + 1, top, width * share - 2, 10, class_, 5)
        yield tag("text", name, x=x + 2, y=top + 30, class_="time")
        yield tag("text", length, x=x + 2, y=top + 47, class_="line")
        x += width * share
    yield tag("text", "the node is given back", x=x - width * 0.3 + 2, y=top + 63, class_="line")
    beside = f"; on GitHub's own GPU runner: {money(hosted.job)}" if hosted.comparable else ""
    paid = f"This job on a new node: {money(job.cold.expected)}{beside}."
    fixed = f"Fixed, besides the jobs, for cluster and network: {money(document.cost.fixed.total)} a month."
    yield tag("text", paid, x=_MARGIN + 2, y=top + 78, class_="time")
    yield tag("text", fixed, x=_MARGIN + 2, y=top + 96, class_="line")


def _right(x: float, end: float, y: float) -> Iterator[Html]:
    yield tag("path", d=f"M{_short(x)} {_short(y)}H{_short(end - 5)}", class_="arrow")
    yield tag("path", d=f"M{_short(end)} {_short(y)}l-7 -4v8z", class_="tip")


def _down(x: float, y: float, end: float) -> list[Html]:
    return [
        tag("path", d=f"M{_short(x)} {_short(y)}V{_short(end - 5)}", class_="arrow"),
        tag("path", d=f"M{_short(x)} {_short(end)}l-4 -7h8z", class_="tip"),
    ]


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _drawing(title: str, height: int, *shapes: Child) -> str:
    return drawing(title, _RULES, WIDTH, height, *shapes)
