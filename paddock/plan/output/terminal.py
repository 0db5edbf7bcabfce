"""A plan on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paddock.fleet import Fleet, nodes
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.plan.cost.money import Money
from paddock.plan.cost.nodes import Range, RunnerCost
from paddock.plan.document.fleet import image, sharing
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.fit import Fit
from paddock.plan.plan import Plan

ROWS = 15
"""Rows of a table before it is cut; --all shows every one."""
_LEFT = {
    *("pool", "GPU", "instances", "capacity", "nodes", "image"),
    *("runs-on", "a node holds", "kind", "of which", "runner"),
}
"""Columns of text; the others are numbers."""
_MARGIN = 8
"""Columns of a finding's severity."""
_STYLE: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def show(plan: Plan, out: Console, *, everything: bool = False) -> None:
    """Pools, runners and where they fit, resources by kind, findings, and one line that sums it up."""
    fleet = plan.stack.fleet
    limit = None if everything else ROWS
    out.print(
        Text.assemble(
            ("Plan of ", ""), (plan.stack.name, "bold"),
            f"  {fleet.github.url}  {fleet.region}  Kubernetes {fleet.cluster.version}",
        )
    )  # fmt: skip
    _print(
        out,
        "Pools",
        ("pool", "GPU", "instances", "capacity", "nodes", "GPUs at most", "image"),
        map(_pool, [fleet] * len(fleet.pools), fleet.pools),
        limit,
    )
    _print(
        out,
        "Runners",
        ("runs-on", "GPUs", "CPU", "memory", "jobs", "a node holds"),
        (_runner(plan, name) for name in fleet.runners),
        limit,
    )
    if fleet.owns_nodes:
        _print(
            out,
            f"Cost of a job of {plan.cost.runners[0].job.minutes:g} minutes, USD" if plan.cost.runners else "Cost",
            ("runner", "a runner-hour", "warm", "on a new node", "GitHub-hosted"),
            (_cost(plan, each) for each in plan.cost.runners),
            limit,
        )
        _month(out, plan)
    _print(out, "Resources", ("kind", "count", "of which"), _kinds(plan), limit)
    _findings(out, plan, limit)
    out.print(_summary(plan))


def _print(
    out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], limit: int | None
) -> None:
    listed = list(rows)
    if not listed:
        return
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column, width in zip(columns, _widths([columns, *listed[:limit]], out.width), strict=True):
        table.add_column(column, justify="left" if column in _LEFT else "right", overflow="fold", width=width)
    for row in listed[:limit]:
        table.add_row(*row)
    out.print()
    out.print(table)
    if limit is not None and len(listed) > limit:
        out.print(f"... {limit} of {len(listed)} shown; --all shows the rest", style="dim")


def _widths(rows: Sequence[Sequence[str | Text]], room: int) -> list[int]:
    """Of the columns. In a narrow terminal lines break between words as long as they can."""
    cells = [[str(row[column]) for row in rows] for column in range(len(rows[0]))]
    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max(cell_len(word) for cell in column for word in cell.split()) for column in cells]
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for least in (words, [1] * len(words)):
        while excess > 0 and (wider := [i for i, width in enumerate(widths) if width > least[i]]):
            widths[max(wider, key=lambda i: widths[i])] -= 1
            excess -= 1
    return widths


def _pool(fleet: Fleet, name: str) -> tuple[str, ...]:
    pool = fleet.pools[name]
    most = max(pool.nodes.max * pool.advertised(instance) for instance in pool.types)
    gpus = max(pool.nodes.max * instance.gpu_count for instance in pool.types)
    return (
        name,
        pool.gpu.name,
        ", ".join(pool.instances),
        " then ".join(nodes.capacities(pool)) if fleet.owns_nodes else "already there",
        f"{pool.nodes.min}-{pool.nodes.max}",
        f"{gpus}" if most == gpus else f"{gpus} as {most} ({sharing(pool)})",
        image(fleet, pool),
    )


def _runner(plan: Plan, name: str) -> tuple[str | Text, ...]:
    fleet = plan.stack.fleet
    fits = [each for each in plan.fits if each.runner == name]
    request = fits[0].request
    least = fleet.runners[name].min
    return (
        Text(f"[{', '.join(fleet.labels(name))}]"),
        str(request.gpus),
        format_cpu(request.cpu_m),
        format_memory(request.memory_mib),
        f"{least}-{fleet.max_runners(name)}",
        Text("\n").join(_on_node(each) for each in fits),
    )


def _on_node(each: Fit) -> Text:
    if not each.per_node:
        return Text(f"{each.instance}: none, for lack of {each.limiting}", style=_STYLE["error"])
    left = f", {each.stranded_gpus:g} GPU stranded" if each.stranded_gpus else ""
    return Text(f"{each.instance}: {each.per_node}{left}", style=_STYLE["warning"] if left else "")


def _cost(plan: Plan, each: RunnerCost) -> tuple[str, ...]:
    hosted = _usd(each.hosted.job) if each.hosted.comparable else "has no such GPU"
    return (each.runner, _range(each.per_hour), _range(each.job.warm), _range(each.job.cold), hosted)


def _month(out: Console, plan: Plan) -> None:
    cost = plan.cost
    counts = cost.counts
    lower = " at least" if cost.missing else ""
    out.print()
    by_use = "" if cost.month.low == cost.month.high else f" ({_range(cost.month)} by use and price)"
    all_in = f"about {_usd(cost.month.expected)} in all{by_use}"
    told = f"{_count(counts['priced'], 'resource')} priced, {counts['free']} free, {counts['unpriced']} unpriced"
    out.print(f"A month{lower}: {_usd(cost.fixed_total)} USD fixed, {all_in} [{told}; --html says all]", markup=False)


def _range(amount: Range) -> str:
    """Cheapest to dearest, or the one amount."""
    low, high = _usd(amount.low), _usd(amount.high)
    return low if low == high else f"{low}-{high}"


def _usd(amount: Money) -> str:
    if amount.value is None:
        return "unknown"
    if not amount.value:
        return "0"
    return (
        f"{amount.value:,.0f}"
        if amount.value >= 100
        else f"{amount.value:,.2f}"
        if amount.value >= 0.1
        else f"{amount.value:.3f}"
    )


def _kinds(plan: Plan) -> list[tuple[str, str, str]]:
    """Resources by package and module, the kinds of each with their counts."""
    groups: dict[str, Counter[str]] = {}
    for resource in _made(plan):
        package, module, kind = resource.type.split(":")
        group = f"AWS {module.split('/')[0]}" if package == "aws" else f"Kubernetes {module.split('/')[0]}"
        groups.setdefault(group, Counter())[kind] += 1
    return [
        (group, str(kinds.total()), ", ".join(f"{kind} {n}" if n > 1 else kind for kind, n in kinds.most_common()))
        for group, kinds in sorted(groups.items(), key=lambda item: (-item[1].total(), item[0]))
    ]


def _findings(out: Console, plan: Plan, limit: int | None) -> None:
    if not plan.findings:
        return
    out.print()
    out.print("Findings", style="bold")
    for finding in plan.findings[:limit]:
        said = Text.assemble((f"{finding.id}  ", "dim"), f"{finding.subject}: {finding.message}")
        margin = Text(f"{finding.severity:{_MARGIN}}", _STYLE[finding.severity])
        for line in said.wrap(out, out.width - _MARGIN):
            line.rstrip()
            out.print(Text.assemble(margin, line))
            margin = Text(" " * _MARGIN)
        if finding.fix:
            # On one line, however long: it may be a command to copy.
            out.print(Text.assemble(margin, ("fix: ", "dim"), finding.fix), soft_wrap=True)
    if limit is not None and len(plan.findings) > limit:
        out.print(f"... {limit} of {len(plan.findings)} shown; --all shows the rest", style="dim")


def _summary(plan: Plan) -> str:
    counts = Counter(finding.severity for finding in plan.findings)
    told = ", ".join(f"{n} info" if s == "info" else _count(n, s) for s in _STYLE if (n := counts[s]))
    fleet = plan.stack.fleet
    what = _count(len(_made(plan)), "resource"), _count(len(fleet.pools), "pool"), _count(len(fleet.runners), "runner")
    return f"\n{', '.join(what)}; {told or 'nothing to say'}"


def _made(plan: Plan) -> list[Resource]:
    """What a cloud or a cluster would hold: no components, and nothing of Pulumi's own."""
    return [each for each in plan.graph.resources.values() if each.custom and not each.type.startswith("pulumi:")]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
