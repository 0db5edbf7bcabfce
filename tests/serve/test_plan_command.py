"""`serve.plan` as it is called: devices of a file, saved inventories, this machine, and mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.gpu import serialization
from paddock.gpu.model import Machine
from paddock.tasks.program import main
from tests.models.configurations import CONFIGURATIONS
from tests.support.gpu_machines import NO_GPU, machines
from tests.support.model_files import EMBEDDING, decoder, gguf, llama_8b, qwen3_30b
from tests.support.packages import need

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
    return main(["paddock", "serve.plan", *words])


def test_a_plan_says_where_and_why_and_what_is_left(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("llama-3.1-8b", "--devices", devices) == 0
    text = capsys.readouterr().out
    assert "HomogeneousCuda: llama.cpp, int8, tensor parallel over 2 devices" in text
    assert "llama.cpp: random weights are written as a .gguf file" in text
    assert "cuda: most devices (2 cuda, 1 metal)" in text
    assert "mac/metal:0  another backend than cuda" in text
    assert "load another instance here: it fits in int8" in text


def test_a_model_that_does_not_fit_ends_with_1_and_what_would_help(
    devices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("llama-3.1-70b", "--dtype", "bf16", "--devices", devices, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["feasible"], document["policy"]["engine"]) == (2, False, "llama.cpp")
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
        (["tiny", "--backend", "cud"], "--backend: 'cud' is not a backend\n    expected: did you mean cuda?"),
        (["tiny", "--backend", "mps"], "expected: did you mean metal?"),
        (
            ["tiny", "--dtype", "int5"],
            "--dtype: 'int5' is not a format that llama.cpp packs\n    expected: did you mean",
        ),
        (["tiny", "--context", "5000"], "--context is 5000\n    expected: at most 4096: tiny has places for"),
        (["tiny", "--context", "0"], "--context is 0\n    expected: 1 or more"),
        (["tiny", "--concurrency", "70000"], "--concurrency is 70000\n    expected: at most 65536"),
        (["tiny", "--reserve", "1"], "--reserve is 1\n    expected: at most 0.95"),
        (["tiny", "--reserve", "nan"], "--reserve is nan\n    expected: 0 or more"),
        (["tiny", "--tp", "65"], "--tp is 65\n    expected: at most 64"),
        (["tiny", "--engine", "vlm"], '--engine is "vlm"\n    expected: did you mean vllm?'),
        (["tiny", "--engine", "vllm"], "vLLM takes checkpoints\n    expected: a folder with config.json"),
        (["tiny", "--quantization", "fp8"], "--quantization is a flag of vllm, and tiny runs on llama.cpp"),
        (["tiny", "--python", "/opt/vllm/bin/python"], "--python is a flag of vllm"),
        (["tiny", "--server", "./llama-server"], "--server: './llama-server' is not a path from the root"),
        (["tiny", "--across-agents"], "a llama-server built with RPC yourself (--rpc HOST:PORT,...)"),
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
        ({"num_attention_heads": 0}, "config.json: num_attention_heads: 0 is not valid"),
        ({"num_hidden_layers": -3}, "num_hidden_layers: -3 is not valid\n    expected: 1 to"),
        ({"hidden_size": "big"}, "config.json: hidden_size: 'big' is not a whole number"),
    ],
)
def test_a_checkpoint_that_cannot_be_sized_is_refused(
    changes: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.models.shapes import shape

    (tmp_path / "config.json").write_text(json.dumps({**shape("tiny").config(), **changes}))
    assert plan(str(tmp_path)) == 2
    assert words in capsys.readouterr().err


SMALL = """\
devices:
  - {agent: box, backend: cuda, index: 0, name: NVIDIA GeForce RTX 4060, memory_mib: 8188}
"""


@pytest.fixture
def eight_gb(tmp_path: Path) -> str:
    file = tmp_path / "eight.yaml"
    file.write_text(SMALL)
    return str(file)


def written(folder: Path, name: str, **changes: object) -> str:
    """Write a published config.json without weights, and return its folder."""
    folder = folder / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIGURATIONS[name].config, **changes}))
    return str(folder)


def test_a_mixture_of_experts_needs_room_for_all_of_them(
    eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(str(qwen3_30b(tmp_path / "moe.gguf")), "--devices", eight_gb) == 1
    text = capsys.readouterr().out
    assert "moe.gguf: 30.5 B parameters, 3.35 B of them for each token" in text
    assert "Weights    16.0 GiB in Q4_K, by the file's own table" in text
    assert "128 experts of which 8 compute" in text


def test_a_checkpoint_that_is_quantised_is_sized_as_it_is(
    eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, "Qwen2.5-7B-Instruct-AWQ")
    assert plan(folder, "--devices", eight_gb) == 0
    text = capsys.readouterr().out
    assert "5.2 GiB in 4-bit awq" in text
    assert "HomogeneousCuda: vllm" in text
    assert plan(folder, "--devices", eight_gb, "--quantization", "fp8") == 2
    assert "are 4-bit awq already, which vLLM reads by itself" in capsys.readouterr().err
    assert plan(folder, "--devices", eight_gb, "--dtype", "int8") == 2
    assert "expected: --quantization fp8" in capsys.readouterr().err
    assert plan(written(tmp_path, "Llama-3.1-8B-Instruct-FP8-dynamic"), "--devices", eight_gb) == 1
    assert "--quantization" not in capsys.readouterr().out, "packing it anew is no help"


def test_a_checkpoint_for_other_devices_is_told_what_converts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, "Qwen2.5-0.5B")
    (tmp_path / "mac.yaml").write_text("devices: [{agent: mac, backend: metal, index: 0, memory_mib: 36864}]")
    for words in (["--devices", str(tmp_path / "mac.yaml")], ["--backend", "cpu"], ["--engine", "llama.cpp"]):
        assert plan(folder, *words) in (1, 2)
        printed = capsys.readouterr()
        assert "convert_hf_to_gguf.py" in printed.out + printed.err, words
    assert plan(folder, "--python", "bin/python") == 2
    assert "not a path from the root" in capsys.readouterr().err
    assert plan(folder, "--quantization", "fp9") == 2
    assert "expected: did you mean fp8?" in capsys.readouterr().err


def test_a_model_of_a_hub_is_planned_by_its_head(
    eight_gb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("huggingface_hub")
    from tests.support.hub import serving

    with serving(monkeypatch, tmp_path) as hub:
        hub.repos["acme/8b-GGUF"] = tmp_path / "acme"
        (tmp_path / "acme").mkdir()
        llama_8b(tmp_path / "acme/8b-Q4_K_M.gguf")
        assert plan("hf://acme/8b-GGUF", "--devices", eight_gb) == 0
        assert "acme/8b-GGUF: 8.03 B parameters" in capsys.readouterr().out
        assert plan("hf://acme/8b-GGUF/8b-Q4_K.gguf", "--devices", eight_gb) == 2
        assert "did you mean 8b-Q4_K_M.gguf?" in capsys.readouterr().err
        assert sum(size for _, size in hub.served) < 10_000_000


def test_formats_of_a_file_are_packed_served_or_refused(
    eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need("numpy")
    from paddock.models import random_gguf
    from paddock.models.shapes import shape

    files = {dtype: tmp_path / f"{dtype}.gguf" for dtype in ("fp16", "int8", "int4")}
    for dtype, file in files.items():
        random_gguf.write(file, shape("tiny"), dtype)
    assert plan(str(files["fp16"]), "--devices", eight_gb, "--dtype", "int4", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["groups"][0]["dtype"] == "int4"
    assert plan(str(files["int4"]), "--devices", eight_gb, "--dtype", "int8") == 0
    text = capsys.readouterr().out
    assert "--dtype int8: its weights have 4.5 bits already (Q4_0), and stay as they are" in text
    assert plan(str(files["int8"]), "--devices", eight_gb, "--dtype", "int4") == 2
    assert "packed again they would lose more" in capsys.readouterr().err
    assert plan(str(files["fp16"]), "--devices", eight_gb, "--dtype", "bf16") == 2
    assert "llama.cpp computes fp16.gguf in fp16, which it is in" in capsys.readouterr().err


def test_a_file_that_cannot_speak_is_refused_or_noted(
    eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = decoder("llama", vocab_size=1000)
    mute = gguf(tmp_path / "mute.gguf", {k: v for k, v in fields.items() if "tokenizer" not in k}, [EMBEDDING])
    assert plan(str(mute), "--devices", eight_gb) == 2
    assert "mute.gguf has no tokenizer" in capsys.readouterr().err
    strange = gguf(tmp_path / "strange.gguf", decoder("paddockian"), [EMBEDDING])
    assert plan(str(strange), "--devices", eight_gb) == 0
    text = capsys.readouterr().out
    assert "no chat template" in text
    need("gguf")
    assert "does not name the architecture paddockian: llama.cpp may refuse the file" in text


@pytest.mark.parametrize("name", ["starcoder2-3b", "gemma-3-4b"])
def test_decoders_of_other_kinds_fit_where_they_do(
    name: str, eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A two-matrix MLP, and tied embeddings that config.json leaves out; windows bound the cache."""
    plan(written(tmp_path, name), "--devices", eight_gb, "--concurrency", "1", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["request"]["parameters"] == CONFIGURATIONS[name].parameters
    assert document["feasible"] is (name == "starcoder2-3b"), "5.6 GiB of weights, and 8.0"


def test_contexts_beyond_the_model_are_refused_and_stretched_ones_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, "Qwen2.5-7B", max_position_embeddings=32768, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768})  # fmt: skip
    (tmp_path / "big.yaml").write_text(DEVICES.replace("23028", "81559"))
    big = ["--devices", str(tmp_path / "big.yaml")]
    assert plan(folder, "--context", "200000", *big) == 2
    assert "has places for 131072 tokens, stretched from 32768 (yarn)" in capsys.readouterr().err
    assert plan(folder, "--context", "100000", "--concurrency", "1", *big) == 0
    assert "beyond the 32768 that the model was trained on first" in capsys.readouterr().out


def test_the_document_says_what_gave_each_number(
    eight_gb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(str(qwen3_30b(tmp_path / "moe.gguf")), "--devices", eight_gb, "--json")
    request = json.loads(capsys.readouterr().out)["request"]
    assert set(request["sources"].values()) == {"file"}
    plan("tiny", "--devices", eight_gb, "--json")
    sources = json.loads(capsys.readouterr().out)["request"]["sources"]
    assert (sources["parameters"], sources["layers"]) == ("formula", "its published config.json")
