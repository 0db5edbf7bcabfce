"""A plan on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paddock.errors import program
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.plan.document.model import (
    Cost,
    Fit,
    Money,
    PlanDocument,
    Pool,
    Range,
    Runner,
    RunnerCost,
    ServedFit,
    ServedModel,
)
from paddock.plan.finding import Finding, Severity
from paddock.plan.output.format import count, gibibytes, usd
from paddock.plan.output.view import (
    cloud_resources,
    largest_gpus,
    owns_nodes,
    privileges,
    read_by_doctor,
    unknown_month,
)

T = TypeVar("T")

ROWS = 15
"""Rows of a table before it is cut; --details shows every one."""
_TEXT_COLUMNS = {
    *("pool", "GPU", "instances", "capacity", "nodes", "image"),
    *("runs-on", "a node holds", "kind", "of which", "runner", "model", "of"),
}
"""Columns of text; the others are numbers."""
_MODULES = 4
"""Modules of a package that the count of resources names."""
_MARGIN = 8
"""Columns of a finding's severity."""
_STYLE: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def show(document: PlanDocument, out: Console, *, details: bool = False) -> None:
    """Print pools, runners and where they fit, cost, resources, findings, and one line that sums it up.

    Without `details` a note or a warning is one line, and so is a step and the count of the resources.
    """
    limit = None if details else ROWS
    fleet, cost = document.fleet, document.cost
    fits: dict[str, list[Fit]] = {}
    for fit in document.fit:
        fits.setdefault(fit.runner, []).append(fit)
    out.print(
        Text.assemble(
            ("Plan: ", ""), (document.stack, "bold"),
            f"  {document.github.url}  {fleet.region}  Kubernetes {fleet.kubernetes}",
        )
    )  # fmt: skip
    _print(
        out,
        "Pools",
        ("pool", "GPU", "instances", "capacity", "nodes", "GPUs at most", "image"),
        _pool,
        document.pools,
        limit,
    )
    _print(
        out,
        "Runners",
        ("runs-on", "GPUs", "CPU", "memory", "jobs", "a node holds"),
        lambda runner: _runner(runner, fits.get(runner.name, ())),
        document.runners,
        limit,
    )
    _print(
        out,
        "Served models",
        ("model", "of", "pods", "GPUs", "CPU", "memory", "GPU memory", "a node holds"),
        lambda model: _served(model, document),
        document.served,
        limit,
    )
    if cost and owns_nodes(document):
        _print(
            out,
            f"Cost of a job of {cost.runners[0].job.minutes:g} minutes, USD" if cost.runners else "Cost",
            ("runner", "a runner-hour", "warm", "on a new node", "GitHub-hosted"),
            _cost,
            cost.runners,
            limit,
        )
        _print(
            out,
            "Cost of served models, USD",
            ("model", "a replica-hour", "a month idle", "a month at most"),
            lambda served: (
                served.model,
                _range(served.replica_hour),
                _range(served.idle_month),
                _range(served.most_month),
            ),
            cost.served,
            limit,
        )
        _month(out, cost)
    if details:
        _print(out, "Resources", ("kind", "count", "of which"), tuple, _kinds(document), limit)
        _findings(out, document)
        _met(out, document, details=True)
        _before_up(out, document)
    else:
        _count_resources(out, document)
        _fold_findings(out, document)
        _met(out, document, details=False)
        _fold_steps(out, document)
        if ids := [*(finding.id for finding in document.findings), *(step.id for step in document.before_up)]:
            command = f"{program()} plan --stack {document.stack}"
            hint = f"In full, with fixes and commands: {command} --explain {ids[-1]}; all of it: --details"
            out.print(f"\n{hint}", style="dim", soft_wrap=True)
    out.print(_summary(document))


def _print(
    out: Console,
    title: str,
    columns: Sequence[str],
    row: Callable[[T], Sequence[str | Text]],
    items: Sequence[T],
    limit: int | None,
) -> None:
    """Print a table with a row of each item, up to `limit`."""
    if not items:
        return
    rows = [row(item) for item in items[:limit]]
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column, width in zip(columns, _widths([columns, *rows], out.width), strict=True):
        table.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right", overflow="fold", width=width)
    for cells in rows:
        table.add_row(*cells)
    out.print()
    out.print(table)
    if len(rows) < len(items):
        out.print(f"... {len(rows)} of {len(items)} shown; --details shows the rest", style="dim")


def _widths(rows: Sequence[Sequence[str | Text]], room: int) -> list[int]:
    """Return the widths of the columns. In a narrow terminal lines break between words if possible."""
    cells = [[str(row[column]) for row in rows] for column in range(len(rows[0]))]
    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max(cell_len(word) for cell in column for word in cell.split()) for column in cells]
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for least in (words, [1] * len(words)):
        while excess > 0 and (wider := [i for i, width in enumerate(widths) if width > least[i]]):
            widths[max(wider, key=lambda i: widths[i])] -= 1
            excess -= 1
    return widths


def _pool(pool: Pool) -> tuple[str, ...]:
    gpus, shares = largest_gpus(pool), max(pool.nodes.max * instance.shares for instance in pool.instances)
    return (
        pool.name,
        pool.gpu.name,
        ", ".join(instance.name for instance in pool.instances),
        " then ".join(pool.capacity) or "already there",
        f"{pool.nodes.min}-{pool.nodes.max}",
        f"{gpus}" if shares == gpus else f"{gpus} as {shares} ({pool.sharing})",
        pool.image,
    )


def _runner(runner: Runner, fits: Sequence[Fit]) -> tuple[str | Text, ...]:
    return (
        Text("\n".join(filter(None, (f"[{', '.join(runner.labels)}]", privileges(runner))))),
        str(runner.gpus),
        format_cpu(runner.cpu),
        format_memory(runner.memory),
        f"{runner.min}-{runner.max}",
        Text("\n").join(_on_node(fit) for fit in fits),
    )


def _served(model: ServedModel, document: PlanDocument) -> tuple[str | Text, ...]:
    fits = [fit for fit in document.served_fit if fit.model == model.name]
    return (
        model.name,
        f"{model.model} {model.dtype}",
        f"{model.min}-{model.max}",
        str(model.gpus),
        format_cpu(model.cpu),
        format_memory(model.memory),
        _gpu_memory(fits),
        Text("\n").join(_replicas_on_node(fit) for fit in fits),
    )


def _gpu_memory(fits: Sequence[ServedFit]) -> Text:
    """Return the memory that a replica takes of each GPU, and that its mode allows."""
    lines = {f"{gibibytes(fit.needed)} of {gibibytes(fit.allowed)}": fit.lacking for fit in fits}
    return Text("\n").join(Text(line, style=_STYLE["error"] if lacking else "") for line, lacking in lines.items())


def _replicas_on_node(fit: ServedFit) -> Text:
    if not fit.per_node:
        return Text(f"{fit.instance}: none, for lack of {fit.limiting}", style=_STYLE["error"])
    return Text(f"{fit.instance}: {fit.per_node}")


def _on_node(fit: Fit) -> Text:
    if not fit.per_node:
        return Text(f"{fit.instance}: none, for lack of {fit.limiting}", style=_STYLE["error"])
    stranded = f", {fit.stranded_gpus:g} GPU stranded" if fit.stranded_gpus else ""
    return Text(f"{fit.instance}: {fit.per_node}{stranded}", style=_STYLE["warning"] if stranded else "")


def _cost(runner: RunnerCost) -> tuple[str, ...]:
    hosted, job = runner.github_hosted, runner.job
    elsewhere = _usd(hosted.job) if hosted.comparable else "has no such GPU"
    return (runner.runner, _range(runner.per_hour), _range(job.warm), _range(job.cold), elsewhere)


def _month(out: Console, cost: Cost) -> None:
    month, resources = cost.month, cost.resources
    lower = " at least" if cost.missing else ""
    by_use = "" if month.low == month.high else f" ({_range(month)} by use and price)"
    total = f"about {_usd(month.expected)} in all{by_use}"
    priced = f"{count(resources.priced, 'resource')} priced, {resources.free} free, {resources.unpriced} unpriced"
    out.print()
    if unknown := unknown_month(cost):
        out.print(f"{unknown} [{priced}; --html lists all]", markup=False)
        return
    out.print(f"A month{lower}: {_usd(cost.fixed.total)} USD fixed, {total} [{priced}; --html lists all]", markup=False)


def _range(amounts: Range) -> str:
    """Cheapest to dearest, or the one amount."""
    low, high = _usd(amounts.low), _usd(amounts.high)
    return low if low == high else f"{low}-{high}"


def _usd(amount: Money) -> str:
    return usd(amount.value, sign="", whole_from=100)


def _kinds(document: PlanDocument) -> list[tuple[str, str, str]]:
    """Resources by package and module, the kinds of each with their counts."""
    groups: dict[str, Counter[str]] = {}
    for resource in cloud_resources(document):
        package, module, kind = resource.type.split(":")
        group = f"AWS {module.split('/')[0]}" if package == "aws" else f"Kubernetes {module.split('/')[0]}"
        groups.setdefault(group, Counter())[kind] += 1
    return [
        (group, str(kinds.total()), ", ".join(f"{kind} {n}" if n > 1 else kind for kind, n in kinds.most_common()))
        for group, kinds in sorted(groups.items(), key=lambda item: (-item[1].total(), item[0]))
    ]


def _count_resources(out: Console, document: PlanDocument) -> None:
    """Print one sentence: how many resources of each package, the larger modules by name."""
    modules: dict[str, Counter[str]] = {}
    for group, number, _ in _kinds(document):
        package, _, module = group.partition(" ")
        modules.setdefault(package, Counter())[module.partition(".")[0]] += int(number)
    named = (
        f"{package} {counts.total()} ({', '.join(f'{module} {n}' for module, n in counts.most_common(_MODULES))}"
        f"{', ...' if len(counts) > _MODULES else ''})"
        for package, counts in modules.items()
    )
    out.print()
    out.print(Text.assemble(("Resources  ", "bold"), ", ".join(named)))


def _fold_findings(out: Console, document: PlanDocument) -> None:
    if not document.findings:
        return
    out.print()
    out.print("Findings", style="bold")
    shown = document.findings[: max(ROWS, sum(finding.severity == "error" for finding in document.findings))]
    for finding in shown:
        if finding.severity == "error":
            _finding(out, finding)
        else:
            margin = Text(f"{finding.severity:{_MARGIN}}", _STYLE[finding.severity])
            sentence = f"{finding.subject}: {finding.message}"
            _print_cut(out, Text.assemble(margin, (f"{finding.id}  ", "dim"), sentence))
    if len(shown) < len(document.findings):
        out.print(f"... {len(shown)} of {len(document.findings)} shown; --details shows the rest", style="dim")


def _findings(out: Console, document: PlanDocument) -> None:
    if not document.findings:
        return
    out.print()
    out.print("Findings", style="bold")
    for finding in document.findings:
        _finding(out, finding)


def _finding(out: Console, finding: Finding) -> None:
    sentence = Text.assemble((f"{finding.id}  ", "dim"), f"{finding.subject}: {finding.message}")
    _in_full(out, Text(f"{finding.severity:{_MARGIN}}", _STYLE[finding.severity]), sentence, finding.fix)


def _in_full(out: Console, margin: Text, sentence: Text, fix: str) -> None:
    for line in sentence.wrap(out, out.width - _MARGIN):
        line.rstrip()
        out.print(Text.assemble(margin, line))
        margin = Text(" " * _MARGIN)
    if fix:
        # On one line, however long: it may be a command to copy.
        out.print(Text.assemble(margin, ("fix: ", "dim"), fix), soft_wrap=True)


def _met(out: Console, document: PlanDocument, *, details: bool) -> None:
    """Print what `pulumi up` would meet in the account, as the doctor read it."""
    reading = document.doctor
    if not reading:
        return
    out.print()
    out.print("What pulumi up would meet", style="bold")
    out.print(Text(read_by_doctor(reading)), style="dim")
    failed = sum(line.status == "fail" for line in reading.results)
    shown = reading.results if details else reading.results[: max(ROWS, failed)]
    for line in shown:
        margin = Text(f"{line.status.upper():{_MARGIN}}", _STYLE[line.severity])
        sentence = Text(line.sentence)
        if details or line.status == "fail":
            _in_full(out, margin, sentence, line.fix)
        else:
            _print_cut(out, Text.assemble(margin, sentence))
    if len(shown) < len(reading.results):
        out.print(f"... {len(shown)} of {len(reading.results)} shown; --details shows the rest", style="dim")


def _fold_steps(out: Console, document: PlanDocument) -> None:
    if not document.before_up:
        return
    out.print()
    out.print("Before pulumi up", style="bold")
    for number, step in enumerate(document.before_up[:ROWS], 1):
        _print_cut(out, Text.assemble(f"{number:2}. ", (f"{step.id}  ", "dim"), step.text))
    if len(document.before_up) > ROWS:
        out.print(f"... {ROWS} of {len(document.before_up)} shown; --details shows the rest", style="dim")


def _print_cut(out: Console, line: Text) -> None:
    """Print what has room on one line."""
    out.print(line, no_wrap=True, overflow="ellipsis")


def _before_up(out: Console, document: PlanDocument) -> None:
    if not document.before_up:
        return
    out.print()
    out.print("Before pulumi up", style="bold")
    for number, step in enumerate(document.before_up, 1):
        margin = f"{number:2}. "
        for line in Text(step.text).wrap(out, out.width - len(margin)):
            line.rstrip()
            out.print(Text.assemble(margin, line))
            margin = " " * len(margin)
        if step.command:
            out.print(Text.assemble(margin, ("run: ", "dim"), step.command), soft_wrap=True)


def _summary(document: PlanDocument) -> str:
    counts = Counter(finding.severity for finding in document.findings)
    findings = [f"{n} info" if s == "info" else count(n, s) for s in _STYLE if (n := counts[s])]
    parts = (
        count(len(cloud_resources(document)), "resource"),
        count(len(document.pools), "pool"),
        count(len(document.runners), "runner"),
    )
    steps = f"; {count(len(document.before_up), 'step')} before pulumi up" if document.before_up else ""
    met = ""
    if document.doctor:
        lines = document.doctor.counts
        met = "; the doctor says " + ", ".join(f"{lines[s] or 'no'} {s.upper()}" for s in ("fail", "unknown", "warn"))
    return f"\n{', '.join(parts)}; {', '.join(findings) or 'no findings'}{met}{steps}"
