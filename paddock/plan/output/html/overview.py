"""The head of the page, its pools and the price of a job as one SVG that stands alone: for a README or a slide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paddock.html.drawing import drawing
from paddock.html.markup import Child, Html, rect, tag
from paddock.plan.document.model import Cost, Fit, Instance, PlanDocument, Pool, RunnerCost
from paddock.plan.output.format import count, gibibytes, money, words
from paddock.plan.output.html import node_drawing
from paddock.plan.output.html.picture import colours
from paddock.plan.output.view import (
    alike,
    capacity,
    figures,
    lack,
    place,
    size,
    summary,
)

WIDTH = 960
_MARGIN, _GAP, _PADDING = 24, 16, 16
_CARD = (WIDTH - 2 * _MARGIN - _GAP) // 2
_FACTS = _CARD - 2 * _PADDING - node_drawing.WIDTH - 12
"""Width of the words next to the drawing of a node."""
_TOP = 172
_LINE = 18
_RULES = """
.card { fill: var(--card); stroke: var(--line); }
.bold { font-weight: 600; }
.title { font-size: 32px; font-weight: 650; }
.name { font-size: 16px; font-weight: 650; }
.figure { font-size: 21px; font-weight: 600; }
.words { font-size: 13px; }
.note { font-size: 12px; fill: var(--soft); }
.bad { font-size: 12px; fill: var(--bad); }
.verdict { font-size: 14px; font-weight: 600; }
.ready { fill: var(--good); } .warning { fill: var(--warn); } .error { fill: var(--bad); }
.pill-ready { fill: var(--good-bg); } .pill-warning { fill: var(--warn-bg); } .pill-error { fill: var(--bad-bg); }
.chip { fill: var(--track); }
.frame { fill: none; stroke: var(--dim); }
"""


def render(document: PlanDocument) -> str:
    """Return the drawing."""
    palette = colours(document)
    fits: dict[str, list[Fit]] = {}
    for fit in document.fit:
        fits.setdefault(fit.pool, []).append(fit)
    cards = [_pool(pool, fits.get(pool.name, ()), palette) for pool in document.pools]
    if document.cost and document.cost.runners:
        cards.append(_jobs(document.cost, palette))
    placed, bottom = _in_two_columns(cards)
    height = bottom + _MARGIN
    title = f"Plan for {document.stack}: {summary(document).words}"
    hatching = tag("defs", node_drawing.hatching())
    return drawing(title, _RULES, WIDTH, height, hatching, *_header(document), *placed)


def _header(document: PlanDocument) -> Iterator[Html]:
    verdict = summary(document)
    width = 8 * len(verdict.words) + 30
    yield _text(_MARGIN, 36, "GPU runner fleet", "note")
    yield _text(_MARGIN, 72, document.stack, "title")
    yield _text(_MARGIN, 98, "   \u00b7   ".join(place(document)), "note")
    yield rect(WIDTH - _MARGIN - width, 42, width, 32, f"pill-{verdict.state}", 16)
    yield _text(WIDTH - _MARGIN - width / 2, 63, verdict.words, f"verdict {verdict.state}", "middle")
    amounts = figures(document)
    step = (WIDTH - 2 * _MARGIN) / len(amounts)
    for index, (amount, name) in enumerate(amounts):
        yield _text(_MARGIN + index * step, 134, amount, "figure")
        yield _text(_MARGIN + index * step, 152, name, "note")


def _in_two_columns(cards: Iterable[tuple[int, list[Html]]]) -> tuple[list[Html], int]:
    """Return the cards in rows of two, equally high, and where the last row ends."""
    cards, placed, y = list(cards), [], _TOP
    for first in range(0, len(cards), 2):
        row = cards[first : first + 2]
        height = max(card_height for card_height, _ in row)
        for column, (_, shapes) in enumerate(row):
            x = _MARGIN + column * (_CARD + _GAP)
            frame = rect(0.5, 0.5, _CARD - 1, height - 1, "card", 10)
            placed.append(tag("g", frame, *shapes, transform=f"translate({x} {y})"))
        y += height + _GAP
    return placed, y - _GAP


def _pool(pool: Pool, fits: Iterable[Fit], palette: Mapping[str, int]) -> tuple[int, list[Html]]:
    """Return the height and the shapes of a pool: its facts, and its first instance type full of jobs."""
    shapes, y = [_text(_PADDING, 32, pool.name, "name")], 52
    others = [instance.name for instance in pool.instances[1:]]
    alternatives = [f"or {others[0]}", *others[1:]] if others else []
    facts = [pool.gpu.name, capacity(pool), pool.sharing, *alternatives, size(pool)]
    for index, fact in enumerate(filter(None, facts)):
        shapes.append(_text(_PADDING, y, fact, "words" if index == 0 else "note"))
        y += _LINE
    drawn, drawn_height = _small_nodes(pool, y - 6)
    shapes += drawn
    bottom = y + drawn_height
    if pool.instances:
        lanes, lanes_bottom = _lanes(pool.instances[0], fits, palette)
        shapes += lanes
        bottom = max(bottom, lanes_bottom)
    return bottom + 14, shapes


def _small_nodes(pool: Pool, top: float) -> tuple[list[Html], int]:
    """Return the pool's nodes at a glance, in rows, and the height of the rows."""
    gpus = max((instance.gpus for instance in pool.instances), default=1)
    width, height = node_drawing.small_size(gpus)
    across = max(1, (_FACTS + 3) // (width + 3))
    number = min(pool.nodes.max, 2 * across)
    drawn = [
        tag(
            "g",
            node_drawing.small_node(gpus),
            transform=f"translate({_PADDING + index % across * (width + 3)} {top + index // across * (height + 3)})",
        )
        for index in range(number)
    ]
    return drawn, -(-number // across) * (height + 3)


def _lanes(instance: Instance, fits: Iterable[Fit], palette: Mapping[str, int]) -> tuple[list[Html], int]:
    x, right, y = _CARD - _PADDING - node_drawing.WIDTH, _CARD - _PADDING, 32
    machine = f"{instance.vcpus} vCPU \u00b7 {gibibytes(instance.memory)}"
    shapes = [_text(x, y, instance.name, "words bold"), _text(right, y, machine, "note", "end")]
    groups = alike(fit for fit in fits if fit.instance == instance.name)
    for same in groups:
        fit, colour = same[0], palette.get(same[0].runner, 0)
        runners = ", ".join(other.runner for other in same)
        jobs = count(fit.per_node, "job") if fit.per_node else "does not fit"
        drawing = (
            node_drawing.node(instance, fit, colour) if fit.per_node else node_drawing.empty_node(instance, "gpu none")
        )
        shapes += [
            rect(x, y + 12, 9, 9, f"c{colour}"),
            _text(x + 15, y + 21, runners, "words"),
            _text(right, y + 21, jobs, "note" if fit.per_node else "bad", "end"),
            tag("g", drawing, transform=f"translate({x} {y + 30})"),
        ]
        y += 30 + (node_drawing.height(instance) if fit.per_node else node_drawing.ROW + 4)
        if not fit.per_node:
            shapes.append(_text(right, y + 12, f"lacks {lack(fit)}", "bad", "end"))
            y += 18
    if not groups:
        shapes.append(tag("g", node_drawing.empty_node(instance), transform=f"translate({x} {y + 12})"))
        y += 12 + node_drawing.ROW
    return shapes, y


def _jobs(cost: Cost, palette: Mapping[str, int]) -> tuple[int, list[Html]]:
    """Return the height and the shapes of the price of a job: here on a new node, and on GitHub's own runners."""
    right = _CARD - _PADDING
    here, minutes = right - 110, words(cost.runners[0].job.minutes)
    shapes = [
        _text(_PADDING, 32, f"A job of {minutes} minutes", "name"),
        _text(here, 52, "on a new node", "note", "end"),
        _text(right, 52, "GitHub-hosted", "note", "end"),
    ]
    y = 74
    for runner in cost.runners:
        shapes += [
            rect(_PADDING, y - 9, 9, 9, f"c{palette.get(runner.runner, 0)}"),
            _text(_PADDING + 15, y, runner.runner, "words"),
            _text(here, y, money(runner.job.cold.expected), "words bold", "end"),
            _text(right, y, _hosted(runner), "words", "end"),
        ]
        y += 21
    return y - 4, shapes


def _hosted(runner: RunnerCost) -> str:
    return money(runner.github_hosted.job) if runner.github_hosted.comparable else "no such GPU"


def _text(x: float, y: float, words: Child, class_: str, anchor: str | None = None) -> Html:
    return tag("text", words, x=x, y=y, class_=class_, text_anchor=anchor)
