"""The policy pack says what the rules say, from what an engine tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pulumi_policy
import pytest
from pulumi_policy import (
    EnforcementLevel,
    PolicyProviderResource,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    StackValidationArgs,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.values import UNKNOWN, Secret
from paddock.plan.rules import RULES, STALE, check_context
from paddock.plan.rules.base import Context
from policy import pack
from tests.plan.rules.breaking import put
from tests.support import fleets

TODAY = date(2026, 11, 21)
BROKEN = put("LaunchTemplate", "t4", "metadataOptions/httpTokens", "optional")


def _wire(value: Any) -> Any:
    """As an engine sends it: secrets opened, numbers as floats, unknown values as its own mark."""
    match value:
        case Secret(value=inner):
            return _wire(inner)
        case Mapping():
            return {key: _wire(item) for key, item in value.items()}
        case list() | tuple():
            return [_wire(item) for item in value]
        case bool() | str() | None:
            return UNKNOWN_STRING_VALUE if value == UNKNOWN else value
        case int():
            return float(value)
        case _:
            return value


def _arguments(graph: Graph) -> StackValidationArgs:
    by_urn = {urn: _policy_resource(item) for urn, item in graph.resources.items()}
    for urn, item in graph.resources.items():
        by_urn[urn].parent = by_urn.get(item.parent)
        by_urn[urn].dependencies = [by_urn[other] for other in item.dependencies if other in by_urn]
        by_urn[urn].property_dependencies = {
            key: [by_urn[other] for other in urns if other in by_urn]
            for key, urns in item.property_dependencies.items()
        }
    return StackValidationArgs(list(by_urn.values()))


def _policy_resource(item: Resource) -> PolicyResource:
    provider = None
    if item.provider:
        urn = item.provider.rpartition("::")[0]
        provider = PolicyProviderResource(urn.split("::")[2], {}, urn, urn.rpartition("::")[2])
    timeouts = pulumi_policy.PolicyCustomTimeouts(0, 0, 0)
    options = PolicyResourceOptions(item.protect, list(item.ignore_changes), False, [], timeouts, [])
    return PolicyResource(
        item.type, unknown_checking_proxy(_wire(item.inputs)), item.urn, item.name, options, provider, None, [], {}
    )


def _violations(
    graph: Graph, config: Mapping[str, str] | None = None, root: Path = fleets.ROOT, *, unreached: bool = False
) -> dict[str, list[tuple[str, str | None]]]:
    listens, *policies = pack.policies(lambda: config or {}, TODAY, root)
    args, by_policy = _arguments(graph), {}
    for item in args.resources:
        request = ResourceValidationArgs(
            item.resource_type, item.props, item.urn, item.name, item.opts, item.provider, {}, {}
        )
        listens.validate(request, lambda message, urn=None: pytest.fail("it only listens"))
        if unreached and item.resource_type.startswith("kubernetes:"):
            item.props = unknown_checking_proxy({})
    for policy in policies:
        reports: list[tuple[str, str | None]] = []
        policy.validate(args, lambda message, urn=None, reports=reports: reports.append((message, urn)))
        if reports:
            by_policy[policy.name] = reports
    return by_policy


def test_every_rule_has_a_policy_as_strict_as_itself() -> None:
    levels = {policy.name: policy.enforcement_level for policy in pack.policies(dict, TODAY)}
    assert set(RULES) | {STALE} <= set(levels)
    for rule in RULES.values():
        assert levels[rule.id] == (
            EnforcementLevel.MANDATORY if rule.severity == "error" else EnforcementLevel.ADVISORY
        )
        assert (f"{rule.id}-advice" in levels) == rule.milder


@pytest.mark.parametrize("preview", [False, True], ids=["made", "preview"])
def test_an_example_stack_breaks_no_policy(preview: bool) -> None:
    assert set(_violations(fleets.graph("dev", preview=preview))) <= {"PAD033-advice"}


def test_objects_of_a_missing_cluster_are_judged_by_their_declaration() -> None:
    assert set(_violations(fleets.graph("dev", preview=True), unreached=True)) == {"PAD033-advice"}


def test_a_policy_says_what_the_rule_says_of_the_same_resource() -> None:
    graph = BROKEN(fleets.graph("dev"))
    (violation,) = (v for v in check_context(Context(graph, today=TODAY)).violations if v.rule.id == "PAD008")
    ((message, urn),) = _violations(graph)["PAD008"]
    assert violation.detail.message in message
    assert violation.finding.fix in message
    assert urn == violation.detail.urn


def test_suppressions_of_the_stack_hold_in_the_pack() -> None:
    entry = {"rule": "PAD008", "resource": "t4", "reason": "until the driver is mended", "expires": "2027-01-31"}
    config = {**fleets.named("dev").config, "paddock:suppressions": json.dumps([entry])}
    assert set(_violations(BROKEN(fleets.graph("dev")), config)) <= {"PAD033-advice"}
    assert STALE in _violations(fleets.graph("dev"), config)


def test_suppressions_come_from_the_stack_file_without_engine_configuration(tmp_path: Path) -> None:
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (tmp_path / name).write_text((fleets.ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "Pulumi.dev.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "  paddock:suppressions:\n"
            '    - {rule: PAD008, resource: t4, reason: "until the driver is mended", expires: "2027-01-31"}\n'
        )
    assert set(_violations(BROKEN(fleets.graph("dev")), root=tmp_path)) <= {"PAD033-advice"}


def test_wrong_suppressions_excuse_nothing_and_are_reported() -> None:
    result = _violations(BROKEN(fleets.graph("dev")), {"paddock:suppressions": '[{"rule": "PAD8"}]'})
    assert {"PAD008", STALE} <= set(result)


def test_resources_of_an_engine_become_the_original_graph() -> None:
    graph = fleets.graph("dev")
    rebuilt = pack.graph(_arguments(graph).resources, {})
    for urn, item in graph.resources.items():
        result = rebuilt.resources[urn]
        assert (result.type, result.name, result.protect, result.property_dependencies.keys()) == (
            item.type, item.name, item.protect, item.property_dependencies.keys()
        )  # fmt: skip
        assert result.provider.rpartition("::")[0] == item.provider.rpartition("::")[0]
        assert "Secret" in item.type or result.inputs == item.inputs
