"""Rights of the credentials, by IAM's own simulator, against those that the resources of the stack need."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from paddock.errors import program
from paddock.init.permissions.policy import Statement, statements
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources.unavailable import Unavailable

_result = partial(Result, area="permissions", subject="pulumi up")
_BATCH = 40
"""Actions of one simulation."""
_SIDE_BY_SIDE = 5
"""Simulations at a time: IAM answers one in half a second, and takes few a second of one account."""
_SHOWN = 6
"""Missing actions that the line names; the JSON has all."""


def permissions(context: Context) -> Iterator[Result]:
    """Simulate each action that making, changing and deleting the resources takes. Nothing is changed."""
    account = context.identity().account
    principal = context.deployer().arn
    needed = statements(context.graph(), context.fleet.region)
    total = sum(len(statement.actions) for statement in needed)
    if principal.endswith(":root"):
        yield _result(status="pass", message=f"the root user may do all {total} actions")
        return
    batches = [
        (statement, statement.actions[start : start + _BATCH])
        for statement in needed
        for start in range(0, len(statement.actions), _BATCH)
    ]
    denied: dict[str, str] = {}
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for part in pool.map(lambda batch: _denied(context, principal, account, *batch), batches):
            denied |= part
    if not denied:
        yield _result(
            status="pass",
            message=f"{principal} may do the {total} actions that the resources need, IAM's simulator says",
        )
        return
    listed = sorted(denied)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    by = sorted(set(denied.values()))
    yield _result(
        status="fail",
        message=f"{principal} may not do {len(listed)} of {total} actions ({', '.join(by)}): "
        f"{', '.join(listed[:_SHOWN])}{more}",
        fix=f"{program()} init.permissions --stack {context.stack.name} --write policies   # policies to attach",
        permission=", ".join(listed),
    )


def _denied(
    context: Context, principal: str, account: str, statement: Statement, actions: tuple[str, ...]
) -> dict[str, str]:
    """Return the actions of a statement that are denied, with the kind of policy that does it.

    A pattern of the statement stands for the resources: the simulator compares it as text with the policies' patterns.
    An action counts as allowed where one of the resources allows it, since not every action takes every resource.
    """
    parameters: dict[str, Any] = {
        "PolicySourceArn": principal,
        "ActionNames": list(actions),
        "ResourceArns": [_in_account(arn, account) for arn in statement.resources],
        "ContextEntries": _conditions(statement),
    }
    answers = context.aws.pages("iam", "simulate_principal_policy", "EvaluationResults", **parameters)
    denied: dict[str, str] = {}
    allowed: set[str] = set()
    for answer in answers:
        decisions = {answer["EvalDecision"]}
        decisions |= {part["EvalResourceDecision"] for part in answer.get("ResourceSpecificResults", ())}
        if "allowed" in decisions:
            allowed.add(answer["EvalActionName"])
        else:
            denied[answer["EvalActionName"]] = _denied_by(answer)
    if unanswered := set(actions) - allowed - set(denied):
        raise Unavailable(f"IAM's simulator left out {', '.join(sorted(unanswered))}", "run it again")
    return {name: by for name, by in denied.items() if name not in allowed}


def _denied_by(answer: dict[str, Any]) -> str:
    if not answer.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True):
        return "a service control policy denies it"
    if not answer.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary", True):
        return "the permissions boundary denies it"
    return "a policy denies it" if answer["EvalDecision"] == "explicitDeny" else "no policy allows it"


def _in_account(arn: str, account: str) -> str:
    parts = arn.split(":", 5)
    return ":".join([*parts[:4], account, parts[5]]) if len(parts) == 6 and parts[4] == "*" else arn


def _conditions(statement: Statement) -> list[dict[str, Any]]:
    entries = []
    for values_by_key in (statement.condition or {}).values():
        for key, values in values_by_key.items():
            first = values if isinstance(values, str) else values[0]
            entries.append({"ContextKeyName": key, "ContextKeyValues": [first], "ContextKeyType": "string"})
    return entries
