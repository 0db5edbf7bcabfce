"""The work of `inv aws.permissions`, without Invoke."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

from paddock.errors import program
from paddock.fleet import load
from paddock.onboarding.permissions import table
from paddock.onboarding.permissions.policy import (
    LARGEST,
    MOST_POLICIES,
    Statement,
    policies,
    service_of,
    size,
    statements,
)
from paddock.plan.engine.program import plan_graph
from paddock.terminal import NO_JSON, JsonOutput, OutputError, json_errors, write


@json_errors
def run(root: Path, stack: str, *, folder: Path | None = None, json: JsonOutput = NO_JSON) -> None:
    """Print what `pulumi up` of a stack may do, and write it as policies. Raises FleetError and OutputError."""
    loaded = load(root, stack)
    parts = statements(plan_graph(loaded), loaded.fleet.region)
    named = {f"{loaded.fleet.name}-{number}": policy for number, policy in enumerate(policies(parts), 1)}
    removed = _write(folder, loaded.fleet.name, named) if folder else []
    commands = _commands(named, folder) if folder else []
    listed = [{"name": name, "size": size(policy), "document": policy} for name, policy in named.items()]
    facts = {key: table.document()[key] for key in ("as_of", "sources")}
    json.write({"stack": stack, "policies": listed, "commands": commands, "removed": removed, **facts})
    if json.replaces_text:
        return
    if removed:
        sys.stdout.write(f"Removed from {folder}, because the plan needs fewer policies now: {', '.join(removed)}\n")
    if not named:
        sys.stdout.write(f"pulumi up of {loaded.fleet.name} needs no right in AWS\n")
        return
    lines = [_head(loaded.fleet.name, parts, named), "", *map(_line, parts), ""]
    if folder:
        lines += [f"Written to {folder}. Somebody who may change IAM runs:", *(f"  {command}" for command in commands)]
    else:
        lines += [
            f"{program()} aws.permissions --stack {stack} --write policies   # writes them, and says how to give them"
        ]
    if len(named) > MOST_POLICIES:
        lines += [f"A role takes {MOST_POLICIES} managed policies: ask AWS for more, or split the stack in layers"]
    sys.stdout.write("\n".join(lines) + "\n")


def _write(folder: Path, fleet: str, named: dict[str, dict[str, Any]]) -> list[str]:
    """Write a file for each policy, and return the names of older ones of the same fleet, which are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--write {folder}: {error.strerror}\n    expected: a folder of yours") from None
    for name, policy in named.items():
        write(folder / f"{name}.json", f"{dumps(policy, indent=1)}\n")
    own = re.compile(rf"{re.escape(fleet)}-[1-9]\d*\.json", re.ASCII)
    try:
        old = sorted(path for path in folder.iterdir() if own.fullmatch(path.name) and path.stem not in named)
        for path in old:
            path.unlink()
    except OSError as error:
        raise OutputError(
            f"--write {folder}: files of an earlier plan cannot be removed: {error.strerror}\n"
            "    expected: a folder of yours, with these policies and no others of the fleet"
        ) from None
    return [path.name for path in old]


def _commands(named: dict[str, Any], folder: Path) -> list[str]:
    """Return the commands that make the policies and give them to a role."""
    create = [
        f"aws iam create-policy --policy-name {name} --policy-document {shlex.quote(f'file://{folder / name}.json')}"
        for name in named
    ]
    attach = [
        f"aws iam attach-role-policy --role-name ROLE --policy-arn arn:aws:iam::ACCOUNT:policy/{name}" for name in named
    ]
    return [*create, *attach]


def _head(name: str, parts: Sequence[Statement], named: dict[str, dict[str, Any]]) -> str:
    actions = {action for part in parts for action in part.actions}
    sizes = ", ".join(f"{size(policy):,}" for policy in named.values())
    return (
        f"pulumi up of {name} takes {len(actions)} actions in AWS: {len(named)} "
        f"{'policy' if len(named) == 1 else 'policies'} of {sizes} characters (AWS takes {LARGEST:,})\n"
        f"Facts of {table.document()['as_of']}: {', '.join(source['name'] for source in table.document()['sources'])}"
    )


def _line(part: Statement) -> str:
    counts: dict[str, int] = {}
    for action in part.actions:
        counts[service_of(action)] = counts.get(service_of(action), 0) + 1
    lines = [", ".join(f"{name} {count}" for name, count in counts.items()), *part.resources]
    if part.condition:
        ((key, values),) = part.condition["StringEquals"].items()
        lines.append(f"where {key} is {values if isinstance(values, str) else ' or '.join(values)}")
    return "  " + "\n      ".join(lines)
