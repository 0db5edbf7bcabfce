"""The page's sections beside the picture and the tree: each is None where the plan has nothing to say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from paddock.plan.output.html.markup import Child, Html, code, join, rect, section, svg, table, tag
from paddock.plan.output.html.money import amount, monthly
from paddock.plan.output.html.picture import lack, swatch
from paddock.plan.output.html.reading import (
    Document,
    Runner,
    cores,
    count,
    gibibytes,
    made,
    mebibytes,
    millicores,
    number,
    part,
    pools,
    rows,
    text,
    verdict,
    whole,
    words,
)
from paddock.plan.output.html.reading import findings as sorted_findings

PICTURE_NOTE = (
    "Each node is drawn once for each runner of its pool, filled with as many of that runner's jobs as it takes. "
    "CPU and RAM are what a booted node has for jobs."
)
MARKS = {"error": "\u2717", "warning": "!", "info": "i", "ready": "\u2713"}


def header(document: Document) -> Html:
    fleet, told = part(document, "fleet"), verdict(document)
    found = pools(document)
    organisation = re.sub(r"^https?://", "", text(part(document, "github"), "url"))
    where: list[Child] = [
        organisation,
        text(fleet, "region"),
        f"Kubernetes {text(fleet, 'kubernetes')}" if text(fleet, "kubernetes") else "",
        text(fleet, "name"),
    ]
    planned = text(document, "planned")
    figures = [
        (f"{len(rows(document, 'runners')) or len({text(f, 'runner') for f in rows(document, 'fit')}):,}", "runners"),
        (f"{len(found):,}", "GPU pools"),
        (f"{sum(p.least for p in found):,}\u2013{sum(p.most for p in found):,}", "GPU nodes"),
        (f"{sum(p.gpus for p in found):,}", "GPUs at most"),
        (f"{len(made(document)):,}", "resources"),
    ]
    expected = part(monthly(document), "expected")
    if expected:
        figures.append((amount(expected), "a month expected"))
    return tag(
        "header",
        tag("p", "GPU runner fleet", class_="kicker"),
        tag("h1", text(document, "stack", "unnamed")),
        tag(
            "p",
            [tag("span", each) for each in where if each],
            tag("span", f"planned {planned}") if planned else None,
            class_="where",
        ),
        tag("p", _mark(told.state), " ", told.words, class_=f"verdict {told.state}"),
        tag("dl", [tag("div", tag("dt", name), tag("dd", amount)) for amount, name in figures], class_="figures"),
        class_="top",
    )


def contents(parts: Iterable[Html]) -> Html:
    """Links to the sections, as their headings name them."""
    found = (re.search(r'<h2 id="([\w-]+)">(.*?)</h2>', part_) for part_ in parts)
    links = [tag("li", tag("a", Html(match[2]), href=f"#{match[1]}")) for match in found if match]
    return tag("nav", tag("ul", links), aria_label="Sections", class_="contents")


def legend(runners: dict[str, Runner]) -> Html | None:
    if not runners:
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
            [swatch(runner), runner.name],
            code(f"runs-on: [{', '.join(runner.labels)}]") if runner.labels else "unknown",
            runner.pool,
            runner.gpus,
            runner.cpu,
            runner.memory,
            runner.jobs,
            "; ".join(runner.notes),
        )
        for runner in runners.values()
    ]
    return section(
        "runners", "Runners", table("Runners and the labels a workflow asks for", columns, body, hide_caption=True)
    )


def findings(document: Document) -> Html:
    found = sorted_findings(document)
    if not found:
        return section("findings", "Findings", tag("p", _mark("ready"), " Nothing to report.", class_="note"))
    items: dict[bool, list[Html]] = {True: [], False: []}
    for (severity, id_, message, fix), same in groupby(
        found, lambda f: (text(f, "severity", "info"), text(f, "id"), text(f, "message"), text(f, "fix"))
    ):
        subjects = list(dict.fromkeys(text(each, "subject") for each in same))
        items[severity in ("error", "warning")].append(
            tag(
                "li",
                tag(
                    "p",
                    tag("span", _mark(severity), severity.capitalize(), class_="severity"),
                    [code(s) for s in subjects if s],
                    tag("span", id_, class_="note id"),
                ),
                tag("p", message),
                tag("p", tag("span", "Fix: ", class_="note"), code(fix), class_="fix") if fix else None,
                class_=severity if severity in MARKS else "info",
            )
        )
    notes = tag("ul", items[False], class_="findings")
    if items[True] and items[False]:
        notes = tag("details", tag("summary", f"{count(len(items[False]), 'note')} to know"), notes, class_="more")
    told = tag("ul", items[True], class_="findings") if items[True] else None
    return section("findings", "Findings", told, notes if items[False] else None)


def fit(document: Document, runners: dict[str, Runner]) -> Html | None:
    found = rows(document, "fit")
    if not found:
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
    for each in found:
        jobs, asked, has = whole(each, "per_node"), part(each, "request"), part(each, "available")
        name = text(each, "runner")
        stranded = number(each, "stranded_gpus") or 0.0
        body.append(
            (
                [swatch(runners[name]) if name in runners else None, name],
                text(each, "instance"),
                jobs if jobs else tag("strong", "none", class_="bad"),
                text(each, "limiting") if jobs else tag("span", "lacks ", lack(each), class_="bad"),
                _use(
                    whole(asked, "gpus") * jobs,
                    whole(has, "gpus"),
                    str(whole(asked, "gpus") * max(jobs, 1)),
                    str(whole(has, "gpus")),
                ),
                _use(
                    millicores(asked.get("cpu")) * jobs,
                    millicores(has.get("cpu")),
                    cores(f"{millicores(asked.get('cpu')) * max(jobs, 1):.0f}m", 1),
                    cores(has.get("cpu"), 1),
                ),
                _use(
                    mebibytes(asked.get("memory")) * jobs,
                    mebibytes(has.get("memory")),
                    f"{mebibytes(asked.get('memory')) * max(jobs, 1) / 1024:,.1f}".removesuffix(".0"),
                    gibibytes(has.get("memory")),
                ),
                tag("strong", f"{stranded:g}", class_="warn") if stranded else "0",
                text(each, "memory"),
            )
        )
    return section(
        "fit",
        "Fit",
        table("What jobs take of each node", columns, body, hide_caption=True),
        note="What the jobs on a full node take of what it has for jobs. Where none fits, what one asks for.",
    )


def lookups(document: Document) -> Html | None:
    """What the program asks the cloud while it runs, each question once."""
    asked: dict[tuple[str, str], int] = {}
    for each in rows(document, "lookups"):
        key = (text(each, "token"), words(part(each, "arguments")))
        asked[key] = asked.get(key, 0) + 1
    if not asked:
        return None
    body = [(code(token), arguments, times) for (token, arguments), times in asked.items()]
    note = "What the program asks AWS while it runs. A plan answers with stand-ins."
    columns = [("Function", ""), ("Arguments", "wide"), ("Times", "n")]
    return section("lookups", "Lookups", table("Questions to the cloud", columns, body, hide_caption=True), note=note)


def footer(document: Document) -> Html:
    facts = rows(document, "catalog")
    listed = [
        tag(
            "li",
            text(each, "file"),
            " of ",
            text(each, "as_of", "unknown date"),
            [
                [", " if index else ": ", link(text(source, "url"), text(source, "name"))]
                for index, source in enumerate(rows(each, "sources"))
            ],
        )
        for each in facts
    ]
    made_by, planned = text(document, "paddock"), text(document, "planned")
    told = f"Planned{f' by Paddock {made_by}' if made_by else ''}{f' on {planned}' if planned else ''}"
    return tag(
        "footer",
        tag("details", tag("summary", f"Facts this plan rests on ({len(facts)} files)"), tag("ul", listed))
        if facts
        else None,
        tag("p", f"{told}, without the cloud: no resource was read, made or changed."),
        class_="end",
    )


def link(url: str, name: str) -> Html:
    """A link a reader may follow; anything but a web address stays text."""
    if not re.match(r"^https?://", url):
        return join(name or url)
    return tag("a", name or url, href=url, rel="noopener noreferrer")


def _mark(state: str) -> Html:
    return tag("span", MARKS.get(state, "i"), class_=f"sign {state if state in MARKS else 'info'}", aria_hidden="true")


def _use(used: float, has: float, told: str, all_: str) -> Html:
    share = min(1.0, used / has) if has > 0 else 0.0
    bar = svg(f"{share:.0%} used", 72, 6, rect(0, 0, 72, 6, "track", 3), rect(0, 0, 72 * share, 6, "use", 3))
    return join(bar, tag("span", f"{told} of {all_}"))
