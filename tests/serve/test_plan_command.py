"""`serve.plan` as it is called: devices of a file, saved inventories, this machine, and mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paddock import cli
from paddock.gpu import serialization
from paddock.gpu.model import Machine
from tests.support.gpu_machines import NO_GPU, machines

DEVICES = """\
devices:
  - {agent: box, backend: cuda, index: 0, name: NVIDIA A10G, memory_mib: 23028}
  - {agent: box, backend: cuda, index: 1, name: NVIDIA A10G, memory_mib: 23028}
  - {agent: mac, backend: metal, index: 0, name: Apple M4 Max, memory_mib: 36864, bandwidth_gbs: 546}
"""


@pytest.fixture
def devices(tmp_path: Path) -> str:
    file = tmp_path / "devices.yaml"
    file.write_text(DEVICES)
    return str(file)


def plan(*words: str) -> int:
    return cli.main(["paddock", "serve.plan", *words])


def test_a_plan_says_where_and_why_and_what_is_left(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("llama-3.1-8b", "--devices", devices) == 0
    text = capsys.readouterr().out
    assert "HomogeneousCuda: bf16, tensor parallel over 2 devices (nccl)" in text
    assert "cuda: most devices (2 cuda, 1 metal)" in text
    assert "mac/metal:0  another backend than cuda" in text
    assert "load another instance here: it fits in bf16" in text


def test_a_model_that_does_not_fit_ends_with_1_and_what_would_help(
    devices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("llama-3.1-70b", "--devices", devices, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["feasible"]) == (1, False)
    lacking = {
        f"{device['agent']}:{device['index']}": device["lacking_mib"]
        for attempt in document["attempts"]
        for device in attempt["devices"]
    }
    assert all(mib > 10_000 for mib in lacking.values())
    assert set(lacking) == {"box:0", "box:1", "mac:0"}
    assert document["changes"]


def test_saved_inventories_of_machines_are_planned_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tree").mkdir()
    recorded = machines(tmp_path / "tree")
    named = {"gpus": recorded["t4-a10g"], "eight": recorded["8-h100"], "bare": NO_GPU}
    paths = []
    for name, inventory in named.items():
        path = tmp_path / f"{name}.json"
        path.write_text(serialization.dumps(replace(inventory, machine=Machine(name, "linux", "x86_64"))))
        paths.append(str(path))
    assert plan("llama-3.1-70b", "--from", ",".join(paths), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [group["tensor_parallel"] for group in document["groups"]] == [8]
    assert {(unused["agent"], unused["name"]) for unused in document["unused"]} == {
        ("gpus", "Tesla T4"), ("gpus", "NVIDIA A10G"),
    }  # fmt: skip
    assert [link["state"] for link in document["agents"]["bare"]] == ["ok", "broken"]
    assert plan("tiny", "--from", f"{paths[0]},{paths[0]}") == 2
    assert "are both of the machine gpus" in capsys.readouterr().err


def test_this_machine_is_planned_with_its_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("tiny", "--backend", "cpu", "--json") == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert (group["backend"], group["tensor_parallel"]) == ("cpu", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llama-3.1-8"], "MODEL: there is no model 'llama-3.1-8'\n    expected: did you mean llama-3.1-8b?"),
        (["tiny", "--backend", "cud"], "--backend: there is no backend 'cud'\n    expected: did you mean cuda?"),
        (["tiny", "--backend", "mps"], "expected: did you mean metal?"),
        (["tiny", "--dtype", "int5"], "--dtype: there is no format 'int5'\n    expected: did you mean int"),
        (["tiny", "--context", "5000"], "--context: 5000 makes no sense\n    expected: 1 to 4096: tiny has places for"),
        (["tiny", "--context", "0"], "--context: 0 makes no sense"),
        (["tiny", "--concurrency", "0"], "--concurrency: 0 makes no sense\n    expected: 1 to 65536"),
        (["tiny", "--reserve", "1"], "--reserve: 1 makes no sense\n    expected: 0 to 0.95"),
        (["tiny", "--reserve", "nan"], "--reserve: nan makes no sense"),
        (["tiny", "--tp", "0"], "--tp: 0 makes no sense\n    expected: 1 to 64"),
        (["tiny", "--pipeline", "--backend", "cuda"], "--backend cuda allows one"),
        (["tiny", "--devices", "a.yaml", "--from", "b.json"], "--devices and --from both say"),
        (["tiny", "--devices", "/nowhere/a.yaml"], "/nowhere/a.yaml: cannot be read: No such file"),
        (["tiny", "--from", "/nowhere/b.json"], "cannot read /nowhere/b.json"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_read(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "config.json: num_attention_heads: 0 makes no sense"),
        ({"num_hidden_layers": -3}, "num_hidden_layers: -3 makes no sense\n    expected: 1 to"),
        ({"hidden_size": "big"}, "config.json: hidden_size: 'big' is not a whole number"),
    ],
)
def test_a_checkpoint_that_cannot_be_sized_is_refused(
    changes: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.bench.engine.shapes import shape

    (tmp_path / "config.json").write_text(json.dumps({**shape("tiny").config(), **changes}))
    assert plan(str(tmp_path)) == 2
    assert words in capsys.readouterr().err
