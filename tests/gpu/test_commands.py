"""Command lines of GPU actions without Invoke."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import cli
from paddock.gpu.actions.registry import ACTIONS, Action
from paddock.gpu.cli import commands
from paddock.tasks import program
from paddock.terminal import complete_json_flag
from tests.support.explore import examples

WORDS = st.sampled_from(["7", "0.5", "x", "GPU-1", "docker", "a=b", ""])


@examples(40, 500)
@given(data=st.data(), name=st.sampled_from(sorted(ACTIONS)))
def test_flags_read_as_invoke_reads_them(data: st.DataObject, name: str) -> None:
    flags = commands.flags(ACTIONS[name])
    one = st.sampled_from(sorted(flags)).flatmap(
        lambda flag: st.one_of(
            st.just([f"--{flags[flag].name}"]),
            st.builds(lambda word: [f"--{flags[flag].name}", word], WORDS),
            st.builds(lambda word: [f"--{flags[flag].name}={word}"], WORDS),
            st.builds(lambda word: [word], WORDS),
        )
    ) if flags else st.just(["x"])  # fmt: skip
    words = complete_json_flag([word for group in data.draw(st.lists(one, max_size=3)) for word in group])
    calls: list[tuple[dict[str, Any], list[str]]] = []

    def record(action: Action, values: Mapping[str, Any], command: Sequence[str] = ()) -> int:
        calls.append((dict(values), list(command)))
        return 0

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(commands, "perform", record)
        line = [f"gpu.{name}", *words, *data.draw(st.sampled_from([[], ["--", "python", "-c", "x y"]]))]
        if commands.run(line) is not None:
            assert program.run(["paddock", *line]) == 0
            assert calls[0] == calls[1]


@pytest.mark.parametrize(
    "line",
    ["gpu.list --jsno", "gpu.list plan", "gpu.allocate --gpus", "gpu.allocate --gpus x", "gpu.info --help", "list", ""],
)
def test_other_command_lines_are_left_to_invoke(line: str) -> None:
    assert commands.run(line.split()) is None


def test_an_action_starts_without_invoke() -> None:
    source = "import sys; from paddock.cli import main; main(['paddock', 'gpu.list', '--json']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert not {"invoke", "pydantic"} & set(done.stdout.splitlines()[-1].split())


def test_an_empty_path_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paddock", "gpu.list", "--from", ""]) == 2
    assert "--from is empty" in capsys.readouterr().err
