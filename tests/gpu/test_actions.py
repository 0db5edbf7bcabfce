"""The table of actions: what tasks, agents and workflows derive from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from paddock.gpu.actions.parameters import Criteria, Lease, Monitor, Render
from paddock.gpu.actions.registry import ACTIONS
from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.request import Request
from paddock.gpu.monitoring.sampling import DEFAULT
from paddock.gpu.parameter import Parameters, parameter, parse
from paddock.tasks import namespace


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_has_a_task_with_its_flags(name: str) -> None:
    flags = {argument.name for argument in namespace[f"gpu.{name}"].get_arguments()}
    assert flags >= {flag.name.replace("-", "_") for _, _, flag in ACTIONS[name].parameters.flags()}


def test_every_criterion_of_a_request_can_be_given() -> None:
    assert Criteria.names() == [field.name for field in fields(Request)]


def test_a_criterion_is_one_declaration() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Cooler(Criteria):
        max_temperature: int | None = parameter(None, "degrees Celsius, at most", ge=0)

    (flag,) = (flag for name, _, flag in Cooler.flags() if name == "max_temperature")
    assert (flag.name, flag.help) == ("max-temperature", "degrees Celsius, at most")
    schema = Cooler.model().model_json_schema()["properties"]["max_temperature"]
    assert schema["description"] == "Degrees Celsius, at most."
    assert Cooler.from_flags({"max_temperature": 60}).values() == {"max_temperature": 60}
    assert parse(Cooler, {"max_temperature": 60}, "x") == Cooler(max_temperature=60)
    with pytest.raises(GpuInputError, match="greater than or equal to 0"):
        parse(Cooler, {"max_temperature": -1}, "x")


@pytest.mark.parametrize(("kind", "flags", "values"), [
    (Lease, {"count": 1, "min_memory_gib": 0.0, "max_utilisation": None, "near": "", "uuids": ""}, {"count": 1}),
    (Lease, {"count": 2, "uuids": "a, b,", "ttl": None}, {"count": 2, "uuids": ("a", "b")}),
    (Render, {"target": "docker", "count": None, "option": []}, {"target": "docker", "option": ()}),
    (Monitor, {"interval": 1.0, "duration": None, "metrics": ""}, {"interval": 1.0}),
])  # fmt: skip
def test_a_flag_that_was_not_used_gives_no_value(
    kind: type[Parameters], flags: dict[str, Any], values: dict[str, Any]
) -> None:
    assert kind.from_flags(flags).values() == values


def test_the_help_of_monitor_names_the_usual_metrics() -> None:
    help = Monitor.model().model_json_schema()["properties"]["metrics"]["description"]
    assert [name for name in help.removesuffix(".").replace(" and ", ", ").split(", ") if name in DEFAULT][-4:] == list(
        DEFAULT[1:]
    )
    assert f"by default {DEFAULT[0]}" in help


@pytest.mark.parametrize(("name", "flags"), [
    ("allocate", {"share": "0"}),
    ("allocate", {"count": 0}),
    ("allocate", {"max_power_w": "0"}),
    ("render", {"target": "docker", "count": "0"}),
])  # fmt: skip
def test_zero_is_a_value_and_is_refused(name: str, flags: dict[str, Any]) -> None:
    with pytest.raises(GpuInputError, match=r"is 0|: 0 makes no sense"):
        ACTIONS[name].parameters.from_flags(flags).request()  # type: ignore[attr-defined]


def test_a_flag_for_a_number_says_what_it_expects() -> None:
    with pytest.raises(GpuInputError, match=r"--share: 'half' is not a number\n    expected: a number, such as"):
        ACTIONS["allocate"].parameters.from_flags({"share": "half"})
