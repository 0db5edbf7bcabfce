"""Work of the `inv catalog.*` tasks, without Invoke."""

from __future__ import annotations

import sys
from math import inf
from typing import cast

from paddock.catalog.refresh.aws import refresh_main
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors


@json_errors
def refresh(region: str | None, *, dry_run: bool, json: JsonOutput = NO_JSON) -> int:
    """Refreshes the catalogue and says what changed; returns the number of sources that could not be read."""
    report = refresh_main(region=region, dry_run=dry_run)
    failed = sum(bool(source["failed"]) for source in report["sources"])
    json.write(report)
    if json.replaces_text:
        return failed
    out = console()
    for source in report["sources"]:
        head = f"{source['source']:12} {source['file']}"
        if source["failed"]:
            out.print(f"{head}: left as it is: {source['failed']}", markup=False)
        else:
            out.print(f"{head}: {len(source['changed'])} rows {'would change' if dry_run else 'changed'}", markup=False)
            for field in source["kept"]:
                out.print(f"             kept: {field}", markup=False)
    return failed


def instances(
    *,
    gpus: int,
    min_memory: float,
    gpu: str,
    region: str,
    max_price: float,
    sort: str,
    everything: bool,
    json: JsonOutput = NO_JSON,
) -> None:
    """Prints the GPU instance types asked for. Raises BadFlag, BadQuestion and UnknownGpu."""
    from paddock.catalog import table

    priced = table.priced_regions()
    if region not in priced:
        raise BadFlag(
            f"no prices of region {region!r} are known\n    expected: one of {', '.join(priced)}\n"
            f"    fix: ./inv catalog.refresh --region {region or 'REGION'} reads those of another"
        )
    for flag, value in (("--gpus", gpus), ("--min-memory", min_memory), ("--max-price", max_price)):
        if not 0 <= value < inf:  # also false of nan
            raise BadFlag(f"{flag} {value:g} is no amount\n    expected: 0 or more")
    rows = table.choose(gpus, min_memory, gpu or None, region, max_price or None, cast("table.Sort", sort))
    json.write_text(table.render_json(rows))
    if not json.replaces_text:
        sys.stdout.write(table.table(rows, None if everything else table.LIMIT))
