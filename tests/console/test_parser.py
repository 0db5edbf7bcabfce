"""Command lines become parameters, and misuse a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from paddock.console.command import Command
from paddock.console.output import BadFlag
from paddock.console.parameters import Flag, Parameters, parameter
from paddock.console.parser import parse, usage
from paddock.duration import Seconds


@dataclass(frozen=True, kw_only=True)
class Many(Parameters):
    """Parameters of every kind."""

    target: str = parameter(..., "what")
    others: tuple[str, ...] = parameter((), "more of them", positional=True)
    count: int = parameter(1, "how many", flag="gpus", ge=1)
    share: float | None = parameter(None, "a part", gt=0)
    wait: float = parameter(0.0, "how long", unit=Seconds)
    near: Literal["none", "nvlink"] = parameter("none", "how near")
    file: Path | None = parameter(None, "a file")
    some: tuple[str, ...] = parameter((), "some names")
    option: tuple[str, ...] = parameter((), "name=value", repeats=True)
    fix: str | None = parameter(None, "ids", flag=Flag("fix", const="all", optional=True))
    dry_run: bool = parameter(False, "do nothing", flag=Flag("yes", "do it", const=False, absent=True))
    quiet: bool = parameter(False, "say nothing")
    command: tuple[str, ...] = parameter((), "the program", trailing=True)


MANY = Command(Many, lambda parameters: 0)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("x", {"target": "x", "dry_run": True}),
        ("x y,z w", {"target": "x", "others": ("y", "z", "w"), "dry_run": True}),
        ("--target x --yes", {"target": "x", "dry_run": False}),
        ("--gpus 2 x --wait=2m --quiet", {"target": "x", "count": 2, "wait": 120.0, "quiet": True, "dry_run": True}),
        ("x --share 0.5 --near nvlink", {"target": "x", "share": 0.5, "near": "nvlink", "dry_run": True}),
        ("x --some a,b", {"target": "x", "some": ("a", "b"), "dry_run": True}),
        ("x --option a=1,2 --option b=3", {"target": "x", "option": ("a=1,2", "b=3"), "dry_run": True}),
        ("x --fix", {"target": "x", "fix": "all", "dry_run": True}),
        ("x --fix A,B", {"target": "x", "fix": "A,B", "dry_run": True}),
        ("x --", {"target": "x", "command": (), "dry_run": True}),
        ("x -- run a,b --gpus 9", {"target": "x", "command": ("run", "a,b", "--gpus", "9"), "dry_run": True}),
    ],
)
def test_a_command_line_is_read(line: str, values: dict[str, Any]) -> None:
    assert parse("many", MANY, line.split()).values() == values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "many needs TARGET\n    expected: "),
        ("x --smoe a", "many has no flag --smoe\n"),
        ("x --gpus", "--gpus needs a value\n    expected: --gpus N"),
        ("x --gpus --quiet", "--gpus needs a value"),
        ("x --gpus two", "--gpus: 'two' is not a number\n    expected: a whole number, such as 2"),
        ("x --gpus 0", "--gpus is 0\n    expected: 1 or more"),
        ("x --share 0", "--share is 0\n    expected: more than 0"),
        ("x --share nan", "--share is nan"),
        ("x --wait soon", "--wait: 'soon' is not a duration"),
        ("x --near nvlnk", '--near is "nvlnk"\n    expected: did you mean nvlink?'),
        ("x --file=", "--file is empty"),
        ("x --quiet=no", "--quiet takes no value"),
    ],
)
def test_misuse_is_a_sentence(line: str, message: str) -> None:
    with pytest.raises(BadFlag) as refused:
        parse("many", MANY, line.split())
    assert str(refused.value).startswith(message)


def test_json_is_alone_or_has_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    assert parse("many", MANY, ["x", "--json"]).json.replaces_text
    assert parse("many", MANY, ["x", "--json", "--quiet"]).json.replaces_text
    assert parse("many", MANY, ["x", "--json", "a.json"]).json.path == tmp_path / "a.json"


def test_the_usage_names_what_is_needed() -> None:
    assert usage("many", MANY) == "many TARGET [OTHERS] [flags] -- COMMAND"


def test_a_path_is_meant_from_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    assert parse("many", MANY, ["x", "--file", "a"]).values()["file"] == tmp_path / "a"
