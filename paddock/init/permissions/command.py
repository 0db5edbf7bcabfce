"""`init.permissions`: the AWS permissions that `pulumi up` or other commands need, as policies for a role."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import BadFlag, OutputError, write
from paddock.console.parameters import one_of, parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.errors import program
from paddock.fleet import load
from paddock.init.permissions import table
from paddock.init.permissions.policy import (
    LARGEST,
    MOST_POLICIES,
    Statement,
    of_commands,
    policies,
    service_of,
    size,
    statements,
)

_UP = "up"


@dataclass(frozen=True, kw_only=True)
class PermissionsParameters(OfStack):
    """Parameters of `init.permissions`."""

    commands: tuple[str, ...] = parameter(
        (), "what the role runs, if not pulumi up alone: up, doctor, destroy, cost and others", flag="for"
    )
    write: Path | None = parameter(None, "write the policies into this folder, one file each")


@dataclass(frozen=True, kw_only=True)
class PermissionsListed(Report):
    """Permissions that `pulumi up` of a stack needs, or other commands, as policies."""

    SCHEMA = 1
    stack: str
    fleet: str
    role_runs: tuple[str, ...]
    """Commands that --for named; none for `pulumi up` alone."""
    parts: tuple[Statement, ...]
    policies: dict[str, dict[str, Any]]
    """By name."""
    folder: Path | None
    removed: tuple[str, ...]
    """Files of an earlier plan."""

    @property
    def facts(self) -> dict[str, Any]:
        """From where the actions are known; the day is that of the older file."""
        of_up, others = _UP in (self.role_runs or (_UP,)), any(name != _UP for name in self.role_runs)
        files = [*([table.document()] if of_up else []), *([table.commands()] if others else [])]
        return {
            "as_of": min(file["as_of"] for file in files),
            "sources": [source for file in files for source in file["sources"]],
        }

    @property
    def purpose(self) -> str:
        return ", ".join("pulumi up" if name == _UP else name for name in self.role_runs or (_UP,))

    @property
    def commands(self) -> list[str]:
        return _commands(self.policies, self.folder) if self.folder else []

    def document(self) -> dict[str, Any]:
        listed = [{"name": name, "size": size(policy), "document": policy} for name, policy in self.policies.items()]
        head = {"schema": self.SCHEMA, "stack": self.stack, "policies": listed}
        return {**head, "commands": self.commands, "removed": list(self.removed), **self.facts}

    def text(self) -> Iterator[str]:
        if self.removed:
            listed = ", ".join(self.removed)
            yield f"Removed from {self.folder}, because the plan needs fewer policies now: {listed}"
        if not self.policies:
            yield f"{self.purpose} of {self.fleet} needs no permissions in AWS"
            return
        yield self._head()
        yield ""
        yield from map(_line, self.parts)
        yield ""
        if self.folder:
            yield f"Written to {self.folder}. Somebody who may change IAM runs:"
            yield from (f"  {line}" for line in self.commands)
        else:
            flag = f" --for {','.join(self.role_runs)}" if self.role_runs else ""
            again = f"{program()} init.permissions --stack {self.stack}{flag} --write policies"
            yield f"{again}   # writes them, and says how to attach them"
        if len(self.policies) > MOST_POLICIES:
            yield f"A role takes {MOST_POLICIES} managed policies: ask AWS for more, or split the stack in layers"

    def _head(self) -> str:
        actions = {action for part in self.parts for action in part.actions}
        sizes = ", ".join(f"{size(policy):,}" for policy in self.policies.values())
        return (
            f"{self.purpose} of {self.fleet} takes {len(actions)} actions in AWS: {len(self.policies)} "
            f"{'policy' if len(self.policies) == 1 else 'policies'} of {sizes} characters (AWS takes {LARGEST:,})\n"
            f"Facts of {self.facts['as_of']}: {', '.join(source['name'] for source in self.facts['sources'])}"
        )


@command()
def permissions(parameters: PermissionsParameters) -> PermissionsListed:
    """Read the permissions from the plan, and write them as policies. Raises FleetError, BadFlag and OutputError."""
    from paddock.plan.engine.program import plan_graph

    names = parameters.commands or (_UP,)
    choices = (_UP, *dict.fromkeys(row.type for row in table.of_commands()))
    if wrong := [name for name in names if name not in choices]:
        raise BadFlag(f"--for: {wrong[0]} is not a command that asks AWS\n    expected: {one_of(wrong[0], choices)}")
    stack = load(root(), parameters.stack)
    of_up = statements(plan_graph(stack), stack.fleet.region) if _UP in names else ()
    parts = (*of_up, *of_commands(names, stack.fleet))
    name = "-".join((stack.fleet.name, *(name.replace(".", "-") for name in parameters.commands)))
    named = {f"{name}-{number}": policy for number, policy in enumerate(policies(parts), 1)}
    folder = parameters.write
    return PermissionsListed(
        stack=parameters.stack, fleet=stack.fleet.name, role_runs=parameters.commands, parts=parts, policies=named,
        folder=folder, removed=tuple(_write(folder, name, named)) if folder else (),
    )  # fmt: skip


def _write(folder: Path, name: str, named: dict[str, dict[str, Any]]) -> list[str]:
    """Write a file for each policy, and return the names of older ones of the same purpose, which are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--write {folder}: {error.strerror}\n    expected: a folder that you may write") from None
    for own, policy in named.items():
        write(folder / f"{own}.json", f"{dumps(policy, indent=1)}\n")
    numbered = re.compile(rf"{re.escape(name)}-[1-9]\d*\.json", re.ASCII)
    try:
        old = sorted(path for path in folder.iterdir() if numbered.fullmatch(path.name) and path.stem not in named)
        for path in old:
            path.unlink()
    except OSError as error:
        raise OutputError(
            f"--write {folder}: files of an earlier plan cannot be removed: {error.strerror}\n"
            "    expected: a folder that you may write, with these policies and no others of the same names"
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


def _line(part: Statement) -> str:
    counts: dict[str, int] = {}
    for action in part.actions:
        counts[service_of(action)] = counts.get(service_of(action), 0) + 1
    lines = [", ".join(f"{name} {count}" for name, count in counts.items()), *part.resources]
    if part.condition:
        ((key, values),) = part.condition["StringEquals"].items()
        lines.append(f"where {key} is {values if isinstance(values, str) else ' or '.join(values)}")
    return "  " + "\n      ".join(lines)
