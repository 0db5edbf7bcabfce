"""The page's sections beside the picture and the tree: each is None where the plan has nothing to say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby

from paddock.plan.document.model import PlanDocument, Runner
from paddock.plan.output.format import cores, count, gibibytes, words
from paddock.plan.output.html.markup import Html, code, join, rect, section, svg, table, tag
from paddock.plan.output.html.picture import swatch
from paddock.plan.output.view import (
    alike,
    figures,
    job_range,
    lack,
    place,
    privileges,
    summary,
)
from paddock.plan.output.view import findings as sorted_findings

PICTURE_NOTE = (
    "Each node is drawn once for each kind of runner of its pool, filled with as many of its jobs as it takes. "
    "CPU and RAM are what a booted node has for jobs."
)
_MARKS = {"error": "\u2717", "warning": "!", "info": "i", "ready": "\u2713"}
_CONTAINERS = {"none": "", "dind": "Docker in the pod", "kubernetes-novolume": "job containers in pods of their own"}


def header(document: PlanDocument) -> Html:
    verdict = summary(document)
    return tag(
        "header",
        tag("p", "GPU runner fleet", class_="kicker"),
        tag("h1", document.stack),
        tag(
            "p",
            [tag("span", part) for part in place(document)],
            tag("span", f"planned {document.planned}") if document.planned else None,
            class_="where",
        ),
        tag("p", _mark(verdict.state), " ", verdict.words, class_=f"verdict {verdict.state}"),
        tag(
            "dl",
            [tag("div", tag("dt", name), tag("dd", amount)) for amount, name in figures(document)],
            class_="figures",
        ),
        class_="top",
    )


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
        return section("findings", "Findings", tag("p", _mark("ready"), " Nothing to report.", class_="note"))
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
                    tag("span", _mark(severity), severity.capitalize(), class_="severity"),
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
        listed = tag("details", tag("summary", f"{count(len(notes), 'note')} to know"), listed, class_="more")
    first = tag("ul", urgent, class_="findings") if urgent else None
    return section("findings", "Findings", first, listed if notes else None)


def before_up(document: PlanDocument) -> Html | None:
    if not document.before_up:
        return None
    steps = [
        tag("li", step.text, tag("p", code(step.command), class_="fix") if step.command else None)
        for step in document.before_up
    ]
    return section("before-up", "Before pulumi up", tag("ol", steps))


def fit(document: PlanDocument, palette: Mapping[str, int]) -> Html | None:
    if not document.fit:
        return None
    columns = [
        ("Runner", ""),
        ("Node", ""),
        ("Jobs a node", "n"),
        ("Limited by", ""),
        ("GPUs", "bar"),
        ("CPU", "bar"),
        ("Memory", "bar"),
        ("Stranded GPUs", "n"),
        ("Node memory", ""),
    ]
    body = []
    for same in alike(document.fit):
        fit = same[0]
        jobs, request, has = fit.per_node, fit.request, fit.available
        most = max(jobs, 1)
        body.append(
            (
                [_named(other.runner, palette) for other in same],
                fit.instance,
                jobs if jobs else tag("strong", "none", class_="bad"),
                fit.limiting if jobs else tag("span", "lacks ", lack(fit), class_="bad"),
                _use(request.gpus * jobs, has.gpus, f"{request.gpus * most} of {has.gpus}"),
                _use(request.cpu * jobs, has.cpu, f"{cores(request.cpu * most, 1)} of {cores(has.cpu, 1)}"),
                _use(
                    request.memory * jobs,
                    has.memory,
                    f"{request.memory * most / 1024:,.1f}".removesuffix(".0") + f" of {gibibytes(has.memory)}",
                ),
                tag("strong", f"{fit.stranded_gpus:g}", class_="warn") if fit.stranded_gpus else "0",
                fit.memory,
            )
        )
    return section(
        "fit",
        "Fit",
        table("What jobs take of each node", columns, body, hide_caption=True),
        note="What the jobs on a full node take of what it has for jobs. Where none fits, what one requests.",
    )


def _named(runner: str, palette: Mapping[str, int]) -> Html:
    return tag("span", swatch(palette[runner]) if runner in palette else None, runner, class_="pair")


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


def _mark(state: str) -> Html:
    return tag("span", _MARKS[state], class_=f"sign {state}", aria_hidden="true")


def _use(used: float, has: float, label: str) -> Html:
    share = min(1.0, used / has) if has > 0 else 0.0
    bar = svg(f"{share:.0%} used", 72, 6, rect(0, 0, 72, 6, "track", 3), rect(0, 0, 72 * share, 6, "use", 3))
    return join(bar, tag("span", label))
