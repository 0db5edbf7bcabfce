"""The work of `inv aws.permissions`, without Invoke."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

from paddock.errors import program
from paddock.fleet import load
from paddock.onboarding.permissions import table
from paddock.onboarding.permissions.policy import LARGEST, MOST_POLICIES, Statement, policies, size, statements
from paddock.plan.engine.program import plan_graph
from paddock.terminal import NO_JSON, JsonOutput, OutputError, json_errors, write


@json_errors
def run(root: Path, stack: str, *, folder: Path | None = None, json: JsonOutput = NO_JSON) -> None:
    """Print what `pulumi up` of a stack may do, and write it as policies. Raises FleetError and OutputError."""
    loaded = load(root, stack)
    parts = statements(plan_graph(loaded), loaded.fleet.region)
    named = {f"{loaded.fleet.name}-{number}": policy for number, policy in enumerate(policies(parts), 1)}
    if folder:
        _write(folder, named)
    commands = _commands(named, folder or Path("policies"))
    listed = [{"name": name, "size": size(policy), "document": policy} for name, policy in named.items()]
    facts = {key: table.document()[key] for key in ("as_of", "sources")}
    json.write({"stack": stack, "policies": listed, "commands": commands, **facts})
    if json.replaces_text:
        return
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


def _write(folder: Path, named: dict[str, dict[str, Any]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--write {folder}: {error.strerror}\n    expected: a folder of yours") from None
    for name, policy in named.items():
        write(folder / f"{name}.json", f"{dumps(policy, indent=1)}\n")


def _commands(named: dict[str, Any], folder: Path) -> list[str]:
    """Return the commands that make the policies and give them to a role."""
    made = [
        f"aws iam create-policy --policy-name {name} --policy-document file://{folder / f'{name}.json'}"
        for name in named
    ]
    attached = [
        f"aws iam attach-role-policy --role-name ROLE --policy-arn arn:aws:iam::ACCOUNT:policy/{name}" for name in named
    ]
    return [*made, *attached]


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
        service = action.partition(":")[0]
        counts[service] = counts.get(service, 0) + 1
    lines = [", ".join(f"{service} {count}" for service, count in counts.items()), *part.resources]
    if part.condition:
        ((key, values),) = part.condition["StringEquals"].items()
        lines.append(f"where {key} is {values if isinstance(values, str) else ' or '.join(values)}")
    return "  " + "\n      ".join(lines)
