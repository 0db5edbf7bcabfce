"""Generated parts of the documentation: pictures, reference pages and schemas, all written by one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from paddock.bench.report import guide
from paddock.bench.report.model import BenchDocument
from paddock.console.output import console, update
from paddock.fleet import ways_out
from paddock.fleet.docs import reference as fleet_reference
from paddock.monitoring import alerts_page
from paddock.plan import reference as rules_reference
from paddock.plan import schema as plan_schema
from paddock.plan.rules import BASELINE
from paddock.site import plan_page
from paddock.site.pictures import FOLDER, PICTURES


def files(root: Path) -> Mapping[str, Callable[[], str]]:
    """Return each generated file, relative to the checkout, and what makes its text."""
    return {
        "docs/alerts.md": alerts_page.page,
        "docs/bench-modes.md": partial(_with_measured_modes, root),
        "docs/plan-document.md": plan_page.page,
        "docs/plan.schema.json": plan_schema.text,
        "docs/private-networks.md": partial(_with_ways_out, root / "docs/private-networks.md"),
        "docs/rules.md": rules_reference.page,
        "docs/security.md": partial(_with_baseline, root / "docs/security.md"),
        **{str(FOLDER / name): partial(draw, root) for name, draw in PICTURES.items()},
    }


def write_all(root: Path) -> None:
    """Write what is generated, and print what changed. Raises FleetError and OutputError."""
    for name, text in files(root).items():
        if update(root / name, text()):
            console().print(f"{name} is written again")
    fleet_reference.write(root)


def _with_baseline(page: Path) -> str:
    """Return the page with the security baseline as the rules have it today."""
    rows = "".join(f"| {rule.id} | {rule.severity} | {rule.title} |\n" for rule in BASELINE)
    return _between(page, "baseline", f"| rule | severity | what holds |\n|---|---|---|\n{rows}")


def _with_ways_out(page: Path) -> str:
    """Return the page of networks without NAT with what each part calls."""
    rows = "".join(
        f"| {way.what} | `{way.key}` | {', '.join(f'`{service}`' for service in way.endpoints)} "
        f"| {', '.join(way.hosts)} | {way.why}; without: {way.without} ([source]({way.source}), {way.as_of}) |\n"
        for way in ways_out.ways()
    )
    head = "| part | key | endpoints | on the internet | why |\n|---|---|---|---|---|\n"
    return _between(page, "ways out", head + rows)


def _with_measured_modes(root: Path) -> str:
    """Return the page of the resource modes with what the kept result says of them, or with how to keep one."""
    kept = root / "benchmarks/results/modes.json"
    if kept.is_file():
        text = guide.tuning(BenchDocument.model_validate_json(kept.read_text(encoding="utf-8")))
    else:
        text = guide.UNMEASURED
    return _between(root / "docs/bench-modes.md", "measured modes", text)


def _between(page: Path, name: str, text: str) -> str:
    """Return the page with the text between the two marks of that name."""
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name}, by ./inv docs.generate -->\n")
    _, end, after = rest.partition(f"<!-- end of the {name} -->\n")
    return f"{before}{start}\n{text}\n{end}{after}"
