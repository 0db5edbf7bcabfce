"""What `inv catalog.refresh` does, without Invoke."""

from __future__ import annotations

import json
import sys

from paddock.catalog.refresh import refresh_main
from paddock.terminal import console


def refresh(region: str | None, *, dry_run: bool, as_json: bool) -> int:
    """Refreshes the catalogue and says what changed; returns the number of sources that could not be read."""
    told = refresh_main(region=region, dry_run=dry_run)
    failed = sum(bool(source["failed"]) for source in told["sources"])
    if as_json:
        sys.stdout.write(f"{json.dumps(told, indent=2)}\n")
        return failed
    out = console()
    for source in told["sources"]:
        head = f"{source['source']:12} {source['file']}"
        if source["failed"]:
            out.print(f"{head}: left as it is: {source['failed']}", markup=False)
        else:
            out.print(f"{head}: {len(source['changed'])} rows {'would change' if dry_run else 'changed'}", markup=False)
            for kept in source["kept"]:
                out.print(f"             kept: {kept}", markup=False)
    return failed


