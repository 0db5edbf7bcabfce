"""Sections of the page besides the picture and the tree: each is None where the plan has nothing to say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby

from paddock.html.components import folded, header, mark, section, swatch, table
from paddock.html.markup import Html, code, join, tag
from paddock.plan.diff.model import Diff
from paddock.plan.document.model import PlanDocument, Runner
from paddock.plan.output import changes
from paddock.plan.output.format import cores, count, gibibytes, words
from paddock.plan.output.view import (
    figures,
    job_range,
    place,
    privileges,
    read_by_doctor,
    summary,
)
from paddock.plan.output.view import findings as sorted_findings

PICTURE_NOTE = (
    "Each node is drawn once for each kind of runner of its pool, filled with as many of its jobs as it takes. "
    "CPU and RAM are what a booted node has for jobs."
)
_CONTAINERS = {"none": "", "dind": "Docker in the pod", "kubernetes-novolume": "job containers in pods of their own"}


def top(document: PlanDocument) -> Html:
    verdict = summary(document)
    where = [*place(document), *([f"planned {document.planned}"] if document.planned else [])]
    return header("GPU runner fleet", document.stack, where, verdict.state, verdict.words, figures(document))


def contents(parts: Iterable[Html]) -> Html:
    """Links to the sections, as their headings name them."""
    headings = (re.search(r'<h2 id="([\w-]+)">(.*?)</h2>', part_) for part_ in parts)
    links = [tag("li", tag("a", Html(match[2]), href=f"#{match[1]}")) for match in headings if match]
    return tag("nav", tag("ul", links), aria_label="Sections", class_="contents")


def legend(document: PlanDocument, palette: Mapping[str, int]) -> Html | None:
    if not document.runners:
        return None
    columns = [
        ("Runner", ""),
        ("In a workflow", "labels"),
        ("Pool", ""),
        ("GPUs", "n"),
        ("CPU", "n"),
        ("Memory", "n"),
        ("Jobs at a time", "n"),
        ("Notes", "wide"),
    ]
    body = [
        (
            [swatch(palette[runner.name]), runner.name],
            code(f"runs-on: [{', '.join(runner.labels)}]") if runner.labels else "unknown",
            runner.pool,
            runner.gpus,
            cores(runner.cpu),
            gibibytes(runner.memory),
            job_range(runner),
            "; ".join(_notes(runner)),
        )
        for runner in document.runners
    ]
    return section(
        "runners", "Runners", table("Runners and the labels a workflow asks for", columns, body, hide_caption=True)
    )


def _notes(runner: Runner) -> list[str]:
    warm = [f"{entry.min} from {entry.at}" for entry in runner.warm]
    notes = [
        f"warm: {'; '.join(warm)}" if warm else "",
        _CONTAINERS.get(runner.container, runner.container),
        privileges(runner),
        f"priority {runner.priority}" if runner.priority else "",
        ", ".join(f"{key} at {mount}" for key, mount in runner.volumes.items()),
    ]
    return [note for note in notes if note]


def findings(document: PlanDocument) -> Html:
    if not document.findings:
        return section("findings", "Findings", tag("p", mark("ready"), " Nothing to report.", class_="note"))
    urgent: list[Html] = []
    notes: list[Html] = []
    for (severity, id_, message, fix), same in groupby(
        sorted_findings(document), lambda f: (f.severity, f.id, f.message, f.fix)
    ):
        subjects = dict.fromkeys(finding.subject for finding in same)
        (notes if severity == "info" else urgent).append(
            tag(
                "li",
                tag(
                    "p",
                    tag("span", mark(severity), severity.capitalize(), class_="severity"),
                    [code(subject) for subject in subjects if subject],
                    tag("span", id_, class_="note id"),
                ),
                tag("p", message),
                tag("p", tag("span", "Fix: ", class_="note"), code(fix), class_="fix") if fix else None,
                class_=severity,
            )
        )
    listed = tag("ul", notes, class_="findings")
    if urgent and notes:
        listed = folded(f"{count(len(notes), 'note')} to know", listed)
    first = tag("ul", urgent, class_="findings") if urgent else None
    return section("findings", "Findings", first, listed if notes else None)


def met(document: PlanDocument) -> Html | None:
    """Return what `pulumi up` would meet, as the doctor read it; None without a reading."""
    reading = document.doctor
    if not reading:
        return None
    lines = [
        tag(
            "li",
            tag(
                "p",
                tag("span", mark(line.severity), line.status.upper(), class_="severity"),
                code(line.subject),
            ),
            tag("p", line.message),
            tag("p", tag("span", "Fix: ", class_="note"), code(line.fix), class_="fix") if line.fix else None,
            class_=line.severity,
        )
        for line in reading.results
    ]
    listed = tag("ul", lines, class_="findings") if lines else None
    return section("doctor", "What pulumi up would meet", listed, note=f"{read_by_doctor(reading)}.")


def before_up(document: PlanDocument) -> Html | None:
    if not document.before_up:
        return None
    steps = [
        tag("li", step.text, tag("p", code(step.command), class_="fix") if step.command else None)
        for step in document.before_up
    ]
    return section("before-up", "Before pulumi up", tag("ol", steps))


def lookups(document: PlanDocument) -> Html | None:
    """Return the questions that the program puts to the cloud while it runs, each once."""
    times = Counter((lookup.token, words(lookup.arguments)) for lookup in document.lookups)
    if not times:
        return None
    body = [(code(token), arguments, number) for (token, arguments), number in times.items()]
    note = "What the program asks AWS and Helm while it runs. A plan answers with stand-ins."
    columns = [("Function", ""), ("Arguments", "wide"), ("Times", "n")]
    return section("lookups", "Lookups", table("Questions to the cloud", columns, body, hide_caption=True), note=note)


def footer(document: PlanDocument) -> Html:
    files = [
        tag(
            "li",
            file.file,
            " of ",
            file.as_of or "unknown date",
            [[", " if index else ": ", link(source.url, source.name)] for index, source in enumerate(file.sources)],
        )
        for file in document.catalog
    ]
    by = f" by Paddock {document.paddock}" if document.paddock else ""
    on = f" on {document.planned}" if document.planned else ""
    return tag(
        "footer",
        tag("details", tag("summary", f"Facts this plan rests on ({len(files)} files)"), tag("ul", files))
        if files
        else None,
        tag("p", f"Planned{by}{on}, without the cloud: no resource was read, made or changed."),
        class_="end",
    )


def link(url: str, name: str) -> Html:
    """Return a link a reader may follow; anything but a web address stays text."""
    if not re.match(r"^https?://", url):
        return join(name or url)
    return tag("a", name or url, href=url, rel="noopener noreferrer")


def changes_since(diff: Diff) -> Html:
    """Return the changes: in one sentence, in money, and each one folded below."""
    refused = [tag("li", f"Refused: {line}", class_="bad") for line in diff.refused]
    renames = [tag("li", f"Renamed {changes.renamed(rename)}") for rename in diff.renames]
    notes = [tag("li", note, class_="note") for note in diff.notes]
    costs = changes.cost_table(diff.cost)
    columns = [(name, "n" if index else "") for index, name in enumerate(changes.COST_COLUMNS)]
    return section(
        "changes",
        "Changes",
        tag("p", changes.headline(diff)),
        tag("ul", refused, renames, notes) if refused or renames or notes else None,
        table("Cost before and after", columns, costs) if costs else None,
        [_folded(title, content) for title, content in changes.details(diff)],
    )


def _folded(title: str, content: changes.Table | changes.Blocks) -> Html:
    if isinstance(content, changes.Table):
        columns = [(name, "wide" if name in ("message", "why", "so") else "") for name in content.columns]
        inside = table(title, columns, content.rows, hide_caption=True)
    else:
        inside = tag("pre", "\n".join(line for block in content for line in block))
    return folded(title, inside)
