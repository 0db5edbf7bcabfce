"""The picture of the fleet: each pool with its nodes, each node with its GPUs, and the jobs that fill them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddock.html.components import legend, swatch
from paddock.html.markup import Html, join, rect, svg, tag
from paddock.plan.document.model import Fit, Instance, PlanDocument, Pool
from paddock.plan.output.format import count, gibibytes
from paddock.plan.output.html.node_drawing import (
    ROW,
    WIDTH,
    empty_node,
    hatching,
    height,
    node,
    small_node,
    small_size,
)
from paddock.plan.output.view import alike, capacity, gpu_memory, lack, largest_gpus, size

PALETTE = 12
"""Colours of runners, in the style sheet: on each of them white text reads well, and each stands out on both themes."""
_MOST_NODES = 48
"""More nodes of a pool than this are shown as a number."""


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
    sizes = sorted({max((instance.gpus for instance in pool.instances), default=1) for pool in document.pools})
    return tag(
        "svg",
        tag("defs", hatching(), [_symbol(gpus) for gpus in sizes]),
        width=0,
        height=0,
        class_="unseen",
        aria_hidden="true",
        focusable="false",
    )


def _symbol(gpus: int) -> Html:
    width, height_ = small_size(gpus)
    return tag("symbol", *small_node(gpus), id=f"node-{gpus}", viewBox=f"0 0 {width} {height_}")


def _key() -> Html:
    gpu, job = rect(0, 0, 22, 14, "gpu"), rect(2, 2, 18, 10, "job c0")
    samples: list[tuple[str, list[Html]]] = [
        ("a job on a GPU, one colour a runner", [gpu, job]),
        ("a GPU with nothing on it", [gpu]),
        ("stranded: no further job of this runner can use it", [rect(0, 0, 22, 14, "stranded")]),
        ("CPU and memory that jobs take", [rect(0, 4, 22, 6, "track"), rect(0, 4, 15, 6, "job c0")]),
    ]
    return legend([tag("svg", shapes, width=22, height=14, aria_hidden="true"), words] for words, shapes in samples)


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
    lines = [
        tag("p", tag("strong", pool.gpu.name), memory) if pool.gpu.name else None,
        tag("p", tag("span", capacity(pool), class_="badge")),
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
    width, height = small_size(gpus)
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
    more = f" ({drawn} drawn)" if drawn < pool.nodes.max else ""
    words = f"{size(pool)}{more}, up to {count(largest_gpus(pool), 'GPU')}"
    return tag("div", tag("p", words), tag("div", minis, class_="minis"), class_="scale")


def _node(pool: Pool, instance: Instance, fits: Sequence[Fit], palette: Mapping[str, int]) -> Html:
    lanes = [_lane(instance, same, palette) for same in alike(fits)]
    if not lanes:
        cells = svg(f"{count(instance.gpus, 'GPU')}, no runner", WIDTH, ROW, *empty_node(instance))
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
        cells = svg(f"{fit.runner} does not fit on {instance.name}", WIDTH, ROW, *empty_node(instance, "gpu none"))
        return tag("div", title, cells, tag("p", "lacks ", lack(fit), class_="bad"), class_="lane misfit")
    label = (
        f"{instance.name} filled by {count(jobs, 'job')} of {fit.runner}, {count(instance.gpus, 'GPU')}"
        f"{f', {stranded:g} stranded' if stranded else ''}"
    )
    return tag("div", title, svg(label, WIDTH, height(instance), *node(instance, fit, colour)), class_="lane")


def _jobs(jobs: int, stranded: float) -> Html:
    if not jobs:
        return tag("strong", "\u2717 does not fit", class_="bad")
    stranded_text = tag("span", f" \u00b7 {stranded:g} stranded", class_="warn") if stranded else None
    return tag("span", count(jobs, "job"), stranded_text)
