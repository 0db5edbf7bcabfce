"""Holders of what AWS would not delete: things out of Pulumi's errors, and the answers of AWS about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from paddock.operate.destroy import leftovers
from paddock.operate.inventory import holders
from paddock.operate.inventory.things import Thing
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.pulumi_cli.stack import PulumiError, Resource

_HELD = re.compile(
    r"DependencyViolation|mapped public address|ResourceInUse|has nodegroups attached|\.InUse\b"
    r"|RepositoryNotEmpty|BucketNotEmpty|DeleteConflict"
)
"""Codes and words by which AWS says that something else needs a thing."""
_ID = re.compile(r"\b(?:subnet|vpc|sg|igw)-[0-9a-f]{8,17}\b")
_KINDS = {"subnet": "ec2:subnet", "vpc": "ec2:vpc", "sg": "ec2:security-group", "igw": "ec2:internet-gateway"}
_LAST = ("ec2:security-group", "ec2:route-table", "ec2:internet-gateway", "ec2:subnet")
"""Kinds that others hold, in this order."""
_MOST = 8


def explained(
    error: PulumiError, resources: Sequence[Resource], aws: AwsReader, shared: str = ""
) -> tuple[tuple[str, ...], str]:
    """Return lines that name each holder, and the fix; nothing where AWS's refusal is not about a holder.

    `shared` says why what holds a thing may be another's.
    """
    state = {leftovers.key_of(resource) for resource in resources}
    lines, commands = [], []
    for kind, id_ in _things(error, resources):
        try:
            found = [thing for thing in holders.read(aws, kind, id_) if (thing.kind, thing.id) not in state]
        except NotFound:
            continue
        except Unavailable as unread:
            right = f", missing: {unread.permission}" if unread.permission else ""
            lines.append(f"unknown who holds {id_}: {unread}{right}")
            continue
        found.sort(key=lambda thing: _LAST.index(thing.kind) + 1 if thing.kind in _LAST else 0)
        lines += [f"{id_} is held by {leftovers.said(thing)}" for thing in found[:_MOST]]
        lines += [f"{id_} is held by {len(found) - _MOST} more"] if len(found) > _MOST else []
        commands += [_command(thing, shared) for thing in found[:_MOST]]
    if not commands:
        return tuple(lines), ""
    return tuple(dict.fromkeys(lines)), f"{'; '.join(dict.fromkeys(commands))}; then the same command goes on"


def _command(thing: Thing, shared: str) -> str:
    command = leftovers.removal(thing)
    return f"where nobody else has it ({shared}): {command}" if shared and not thing.holds else command


def _things(error: PulumiError, resources: Sequence[Resource]) -> Iterator[tuple[str, str]]:
    """Yield kind and ID of each thing that AWS would not delete, once."""
    by_urn = {resource.urn: resource for resource in resources}
    seen = set()
    for diagnostic in error.run.diagnostics if error.run else ():
        if diagnostic.severity != "error" or not _HELD.search(diagnostic.message):
            continue
        resource = by_urn.get(diagnostic.urn)
        kind, id_ = leftovers.key_of(resource) if resource else ("", "")
        if not kind and (match := _ID.search(diagnostic.message)):
            id_ = match[0]
            kind = _KINDS[id_.partition("-")[0]]
        if kind and (kind, id_) not in seen:
            seen.add((kind, id_))
            yield kind, id_
