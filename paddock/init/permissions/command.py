"""`init.permissions`: the AWS permissions that `pulumi up` of a stack needs, as policies for a role."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import OutputError, write
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.errors import program
from paddock.fleet import load
from paddock.init.permissions import table
from paddock.init.permissions.policy import (
    LARGEST,
    MOST_POLICIES,
    Statement,
    policies,
    service_of,
    size,
    statements,
)


@dataclass(frozen=True, kw_only=True)
class PermissionsParameters(OfStack):
    """Parameters of `init.permissions`."""

    write: Path | None = parameter(None, "write the policies into this folder, one file each")


@dataclass(frozen=True, kw_only=True)
class PermissionsListed(Report):
    """Permissions that `pulumi up` of a stack needs, as policies."""

    SCHEMA = 1
    stack: str
    fleet: str
    parts: tuple[Statement, ...]
    policies: dict[str, dict[str, Any]]
    """By name."""
    folder: Path | None
    removed: tuple[str, ...]
    """Files of an earlier plan."""

    @property
    def commands(self) -> list[str]:
        return _commands(self.policies, self.folder) if self.folder else []

    def document(self) -> dict[str, Any]:
        listed = [{"name": name, "size": size(policy), "document": policy} for name, policy in self.policies.items()]
        facts = {key: table.document()[key] for key in ("as_of", "sources")}
        head = {"schema": self.SCHEMA, "stack": self.stack, "policies": listed}
        return {**head, "commands": self.commands, "removed": list(self.removed), **facts}

    def text(self) -> Iterator[str]:
        if self.removed:
            listed = ", ".join(self.removed)
            yield f"Removed from {self.folder}, because the plan needs fewer policies now: {listed}"
        if not self.policies:
            yield f"pulumi up of {self.fleet} needs no permissions in AWS"
            return
        yield _head(self.fleet, self.parts, self.policies)
        yield ""
        yield from map(_line, self.parts)
        yield ""
        if self.folder:
            yield f"Written to {self.folder}. Somebody who may change IAM runs:"
            yield from (f"  {line}" for line in self.commands)
        else:
            again = f"{program()} init.permissions --stack {self.stack} --write policies"
            yield f"{again}   # writes them, and says how to attach them"
        if len(self.policies) > MOST_POLICIES:
            yield f"A role takes {MOST_POLICIES} managed policies: ask AWS for more, or split the stack in layers"


@command()
def permissions(parameters: PermissionsParameters) -> PermissionsListed:
    """Read the permissions from the plan, and write them as policies. Raises FleetError and OutputError."""
    from paddock.plan.engine.program import plan_graph

    stack = load(root(), parameters.stack)
    parts, fleet, folder = statements(plan_graph(stack), stack.fleet.region), stack.fleet.name, parameters.write
    named = {f"{fleet}-{number}": policy for number, policy in enumerate(policies(parts), 1)}
    removed = tuple(_write(folder, fleet, named)) if folder else ()
    return PermissionsListed(
        stack=parameters.stack, fleet=fleet, parts=parts, policies=named, folder=folder, removed=removed
    )


def _write(folder: Path, fleet: str, named: dict[str, dict[str, Any]]) -> list[str]:
    """Write a file for each policy, and return the names of older ones of the same fleet, which are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--write {folder}: {error.strerror}\n    expected: a folder that you may write") from None
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
            "    expected: a folder that you may write, with these policies and no others of the fleet"
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
