"""The table of actions: what tasks, agents and workflows derive from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from paddock.console.command import perform
from paddock.console.output import BadFlag
from paddock.console.parameters import Parameters, parameter
from paddock.console.parser import parse as parse_words
from paddock.gpu.actions import parse
from paddock.gpu.commands.criteria import Criteria, LeaseTerms
from paddock.gpu.commands.list import List, list_gpus
from paddock.gpu.commands.monitor import MonitorOptions
from paddock.gpu.commands.render import Render
from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.request import Request
from paddock.gpu.monitoring.sampling import DEFAULT
from paddock.gpu.views.gpus import COLUMNS
from paddock.tasks.program import contents


def test_every_criterion_of_a_request_can_be_given() -> None:
    assert Criteria.names() == [field.name for field in fields(Request)]


def test_a_criterion_is_one_declaration() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Cooler(Criteria):
        max_temperature: int | None = parameter(None, "degrees Celsius, at most", ge=0)

    (flag,) = (flag for flag in Cooler.flags() if flag.name == "max_temperature")
    assert (flag.flag.name, flag.about()) == ("max-temperature", "degrees Celsius, at most")
    schema = Cooler.model().model_json_schema()["properties"]["max_temperature"]
    assert schema["description"] == "Degrees Celsius, at most."
    assert Cooler.from_words({"max_temperature": ["60"]}).values() == {"max_temperature": 60}
    assert parse(Cooler, {"max_temperature": 60}, "x") == Cooler(max_temperature=60)
    with pytest.raises(GpuInputError, match="greater than or equal to 0"):
        parse(Cooler, {"max_temperature": -1}, "x")


@pytest.mark.parametrize(("kind", "words", "values"), [
    (LeaseTerms, {"count": ["1"]}, {"count": 1}),
    (LeaseTerms, {"count": ["2"], "uuids": ["a, b,"]}, {"count": 2, "uuids": ("a", "b")}),
    (Render, {"target": ["docker"]}, {"target": "docker", "count": 0}),
    (MonitorOptions, {"interval": ["1"]}, {"interval": 1.0, "duration": None}),
])  # fmt: skip
def test_a_flag_that_was_not_used_gives_no_value(
    kind: type[Parameters], words: dict[str, list[str]], values: dict[str, Any]
) -> None:
    assert kind.from_words(words).values() == values


def test_the_help_of_monitor_names_the_usual_metrics() -> None:
    help = MonitorOptions.model().model_json_schema()["properties"]["metrics"]["description"]
    assert [name for name in help.removesuffix(".").replace(" and ", ", ").split(", ") if name in DEFAULT][-4:] == list(
        DEFAULT[1:]
    )
    assert f"by default {DEFAULT[0]}" in help


def test_the_help_of_the_list_names_its_columns() -> None:
    (columns,) = (flag for flag in List.flags() if flag.name == "columns")
    assert columns.help.partition(": ")[2].replace(" or ", ", ").split(", ") == list(COLUMNS)


@pytest.mark.parametrize(("name", "words"), [
    ("allocate", ["--share", "0"]),
    ("allocate", ["--gpus", "0"]),
    ("allocate", ["--max-power", "0"]),
    ("render", ["docker", "--gpus", "0"]),
    ("allocate", ["--share", "half"]),
    ("allocate", ["--workload", "games"]),
])  # fmt: skip
def test_a_wrong_criterion_is_named_by_its_flag(name: str, words: list[str]) -> None:
    found = contents().find(f"gpu.{name}")
    assert found
    command = found[0].load()
    with pytest.raises((BadFlag, GpuInputError), match=rf"^{words[-2]}(:| is) (.|\n)*\n    expected: "):
        perform(command, parse_words(name, command, words))


@pytest.mark.parametrize(("view", "message"), [
    ({"memory": True, "cuda": True}, "--memory and --cuda are different views"),
    ({"columns": ("uuid",), "details": ""}, "--columns and --details"),
    ({"processes": True, "toolkit": "12.8"}, "--processes and --toolkit"),
    ({"columns": ("uiud",)}, "did you mean uuid?"),
])  # fmt: skip
def test_the_list_has_one_view_at_a_time(view: dict[str, Any], message: str) -> None:
    with pytest.raises(BadFlag, match=message):
        list_gpus(List(**view))
