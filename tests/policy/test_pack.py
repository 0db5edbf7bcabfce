"""The policy pack says what the rules say, from what an engine tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pulumi_policy = pytest.importorskip("pulumi_policy")

from pulumi_policy import (  # noqa: E402
    EnforcementLevel,
    PolicyProviderResource,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    StackValidationArgs,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy  # noqa: E402

from paddock.plan.engine.graph import Graph, Resource  # noqa: E402
from paddock.plan.engine.values import UNKNOWN, Secret  # noqa: E402
from paddock.plan.rules import RULES, STALE, check_context  # noqa: E402
from paddock.plan.rules.base import Context  # noqa: E402
from policy import pack  # noqa: E402
from tests.plan.rules.breaking import put  # noqa: E402
from tests.support import fleets  # noqa: E402

TODAY = date(2026, 11, 21)
BROKEN = put("LaunchTemplate", "t4", "metadataOptions/httpTokens", "optional")


def _wire(value: Any) -> Any:
    """As an engine sends it: secrets opened, numbers as floats, unknown values as its own mark."""
    match value:
        case Secret(value=inner):
            return _wire(inner)
        case Mapping():
            return {key: _wire(each) for key, each in value.items()}
        case list() | tuple():
            return [_wire(each) for each in value]
        case bool() | str() | None:
            return UNKNOWN_STRING_VALUE if value == UNKNOWN else value
        case int():
            return float(value)
        case _:
            return value


def _told(graph: Graph) -> StackValidationArgs:
    found = {urn: _one(each) for urn, each in graph.resources.items()}
    for urn, each in graph.resources.items():
        found[urn].parent = found.get(each.parent)
        found[urn].dependencies = [found[other] for other in each.dependencies if other in found]
        found[urn].property_dependencies = {
            key: [found[other] for other in urns if other in found] for key, urns in each.property_dependencies.items()
        }
    return StackValidationArgs(list(found.values()))


def _one(each: Resource) -> PolicyResource:
    provider = None
    if each.provider:
        urn = each.provider.rpartition("::")[0]
        provider = PolicyProviderResource(urn.split("::")[2], {}, urn, urn.rpartition("::")[2])
    timeouts = pulumi_policy.PolicyCustomTimeouts(0, 0, 0)
    options = PolicyResourceOptions(each.protect, list(each.ignore_changes), False, [], timeouts, [])
    return PolicyResource(
        each.type, unknown_checking_proxy(_wire(each.inputs)), each.urn, each.name, options, provider, None, [], {}
    )


def _violations(
    graph: Graph, config: Mapping[str, str] | None = None, root: Path = fleets.ROOT, *, unreached: bool = False
) -> dict[str, list[tuple[str, str | None]]]:
    listens, *judge = pack.policies(lambda: config or {}, TODAY, root)
    args, found = _told(graph), {}
    for each in args.resources:
        asked = ResourceValidationArgs(
            each.resource_type, each.props, each.urn, each.name, each.opts, each.provider, {}, {}
        )
        listens.validate(asked, lambda message, urn=None: pytest.fail("it only listens"))
        if unreached and each.resource_type.startswith("kubernetes:"):
            each.props = unknown_checking_proxy({})
    for policy in judge:
        said: list[tuple[str, str | None]] = []
        policy.validate(args, lambda message, urn=None, said=said: said.append((message, urn)))
        if said:
            found[policy.name] = said
    return found


def test_there_is_a_policy_for_every_rule_as_strict_as_the_rule() -> None:
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


def test_what_a_cluster_that_is_not_there_yet_cannot_tell_is_judged_by_its_declaration() -> None:
    assert set(_violations(fleets.graph("dev", preview=True), unreached=True)) == {"PAD033-advice"}


def test_a_policy_says_what_the_rule_says_of_the_same_resource() -> None:
    graph = BROKEN(fleets.graph("dev"))
    (violation,) = (v for v in check_context(Context(graph, today=TODAY)).violations if v.rule.id == "PAD008")
    ((message, urn),) = _violations(graph)["PAD008"]
    assert violation.detail.message in message
    assert violation.rule.fix in message
    assert urn == violation.detail.urn


def test_suppressions_of_the_stack_hold_in_the_pack() -> None:
    entry = {"rule": "PAD008", "resource": "t4", "reason": "until the driver is mended", "expires": "2027-01-31"}
    config = {**fleets.named("dev").config, "paddock:suppressions": json.dumps([entry])}
    assert set(_violations(BROKEN(fleets.graph("dev")), config)) <= {"PAD033-advice"}
    assert STALE in _violations(fleets.graph("dev"), config)


def test_suppressions_are_read_from_the_stack_file_where_the_engine_does_not_tell(tmp_path: Path) -> None:
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (tmp_path / name).write_text((fleets.ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "Pulumi.dev.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "  paddock:suppressions:\n"
            '    - {rule: PAD008, resource: t4, reason: "until the driver is mended", expires: "2027-01-31"}\n'
        )
    assert set(_violations(BROKEN(fleets.graph("dev")), root=tmp_path)) <= {"PAD033-advice"}


def test_wrong_suppressions_excuse_nothing_and_are_told() -> None:
    found = _violations(BROKEN(fleets.graph("dev")), {"paddock:suppressions": '[{"rule": "PAD8"}]'})
    assert {"PAD008", STALE} <= set(found)


def test_what_an_engine_tells_becomes_the_graph_it_came_from() -> None:
    graph = fleets.graph("dev")
    again = pack.graph(_told(graph).resources, {})
    for urn, each in graph.resources.items():
        found = again.resources[urn]
        assert (found.type, found.name, found.protect, found.property_dependencies.keys()) == (
            each.type, each.name, each.protect, each.property_dependencies.keys()
        )  # fmt: skip
        assert found.provider.rpartition("::")[0] == each.provider.rpartition("::")[0]
        assert "Secret" in each.type or found.inputs == each.inputs
