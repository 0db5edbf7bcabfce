"""Loading of parts of a model, with real architectures of transformers, on the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch
import transformers

from paddock.models.shapes import Shape, shape
from paddock.serve.errors import ServeInputError
from paddock.serve.own import loading, parallel
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine

pytestmark = pytest.mark.explore

TINY = replace(shape("tiny"), hidden=64, intermediate=128, layers=4, heads=4, kv_heads=2, head_dim=16, vocabulary=512)
CPU = torch.device("cpu")


def spec(model: Shape = TINY, dtype: str = "fp32", **more: Any) -> Spec:
    return Spec(model, dtype, "cpu", 2, 64, **more)


def weights(part: Spec, rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """Return the loaded weights by the names of a whole model."""
    model = loading.load(part, CPU, rank, ranks).model
    start = part.layers[0] if part.layers else 0
    names = {}
    for name, weight in model.state_dict().items():
        head, layers, rest = name.replace(".linear.", ".").partition("layers.")
        number, _, rest = rest.partition(".")
        names[f"{head}{layers}{int(number) + start}.{rest}" if layers else head] = weight
    return names


def build(folder: Path, model: Shape = TINY, architecture: str = "llama", **config: Any) -> Any:
    """Write a checkpoint, and return its weights."""
    torch.manual_seed(1)
    arguments = {**replace(model, architecture=architecture).config(), **config}
    configuration = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    built = transformers.AutoModelForCausalLM.from_config(configuration)
    built.save_pretrained(folder, max_shard_size=model.model.parameters)
    return built.state_dict()


@pytest.fixture(params=["random", "checkpoint"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Shape], str]:
    def of(model: Shape) -> str:
        if request.param == "random":
            return ""
        build(tmp_path, model)
        assert len(list(tmp_path.glob("*.safetensors"))) > 1
        return str(tmp_path)

    return of


@pytest.mark.parametrize("tied", [True, False])
def test_parts_of_ranks_are_those_of_the_whole(source: Callable[[Shape], str], tied: bool) -> None:
    part = spec(replace(TINY, tied=tied), source=source(replace(TINY, tied=tied)))
    whole, ranks = weights(part), [weights(part, rank, 2) for rank in range(2)]
    assert whole.keys() == ranks[0].keys() == ranks[1].keys()
    for name, weight in whole.items():
        cut = parallel.cut(name, 0, 2)
        parts = [rank[name] for rank in ranks]
        assert torch.equal(torch.cat(parts, cut.dimension) if cut else parts[1], weight), name


@pytest.mark.parametrize("tied", [True, False])
def test_stages_hold_their_weights_of_the_whole(source: Callable[[Shape], str], tied: bool) -> None:
    part = spec(replace(TINY, tied=tied), source=source(replace(TINY, tied=tied)))
    whole = weights(part)
    stages = [weights(replace(part, layers=layers)) for layers in ((0, 1), (1, 4))]
    shared = stages[0].keys() & stages[1].keys()
    assert {name for name in shared if "inv_freq" not in name} == set()
    assert stages[0].keys() | stages[1].keys() == whole.keys()
    for stage in stages:
        assert all(torch.equal(weight, whole[name]) for name, weight in stage.items())
    assert "model.embed_tokens.weight" in stages[0]
    assert "lm_head.weight" in stages[1]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_stages_in_a_row_compute_like_the_whole(architecture: str, dtype: str) -> None:
    part = spec(replace(TINY, architecture=architecture), dtype)
    ids = torch.arange(1, 21).view(2, 10)
    engines = [TorchEngine() for _ in range(3)]
    for engine, layers in zip(engines, (None, (0, 3), (3, 4)), strict=True):
        engine.load(replace(part, layers=layers))
    (token, logit), _ = engines[0].read(ids)
    hidden, _ = engines[1].read(ids)
    (staged, staged_logit), _ = engines[2].read(hidden)
    assert hidden.shape == (2, 10, TINY.hidden)
    assert torch.equal(staged, token)
    assert torch.equal(staged_logit, logit)


def test_layers_of_several_kinds_keep_theirs_in_a_stage(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    build(tmp_path, architecture="qwen3", layer_types=kinds, use_sliding_window=True, sliding_window=8)
    part = spec(replace(TINY, architecture="qwen3"), source=str(tmp_path), layers=(1, 4))
    assert loading.load(part, CPU).model.config.layer_types == kinds[1:]


def test_a_bias_of_summed_outputs_stays_with_rank_0(tmp_path: Path) -> None:
    built = build(tmp_path, attention_bias=True)
    ranks = [weights(spec(source=str(tmp_path)), rank, 2) for rank in range(2)]
    name = "model.layers.0.self_attn.o_proj.bias"
    assert torch.equal(ranks[0][name], built[name])
    assert name not in ranks[1]


def test_a_checkpoint_of_other_files_is_read_whole(tmp_path: Path) -> None:
    built = build(tmp_path)
    for file in tmp_path.glob("*.safetensors*"):
        file.unlink()
    torch.save(built, tmp_path / "pytorch_model.bin")
    engine = TorchEngine()
    assert "read whole" in " ".join(engine.load(spec(source=str(tmp_path))).notes)
    assert torch.equal(engine.model.lm_head.weight, built["lm_head.weight"])
    assert weights(spec(source=str(tmp_path)), 1, 2)["model.layers.0.mlp.up_proj.weight"].shape == (64, 64)
    with pytest.raises(ServeInputError, match=r"a stage of a pipeline needs \.safetensors"):
        loading.load(spec(source=str(tmp_path), layers=(0, 2)), CPU)


def test_a_weight_of_another_shape_is_named(tmp_path: Path) -> None:
    build(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 256}))
    with pytest.raises(ServeInputError, match=r"model\.layers\.0\.mlp\.\w+\.weight is of the shape"):
        loading.load(spec(source=str(tmp_path)), CPU)


def test_an_architecture_without_stages_is_refused() -> None:
    with pytest.raises(ServeInputError, match="a olmo2 cannot run in stages"):
        loading.load(spec(replace(TINY, architecture="olmo2"), layers=(0, 2)), CPU)


MIDDLE = Shape("middle", "llama", 1024, 4096, 8, 8, 8, 128, 4096, False)
_MEASURED = """
import os, sys
from pathlib import Path
import torch, transformers
from paddock.serve.own import loading
from paddock.serve.own.protocol import Spec
from paddock.models.shapes import Shape
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
torch.set_num_threads(1)
loading.load(Spec(Shape("small", "llama", 64, 128, 1, 2, 2, 32, 64, False), "fp32", "cpu", 1, 64), torch.device("cpu"))
shape, source, parts = eval(sys.argv[1])
for dtype, layers, ranks in parts:
    if os.fork():
        os.wait()
        continue
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    spec = Spec(Shape(*shape), dtype, "cpu", 1, 64, source, layers=layers)
    loaded = loading.load(spec, torch.device("cpu"), ranks - 1, ranks)
    print(memory("VmHWM") - before, flush=True)
    os._exit(0)
"""


def peaks(source: str, *parts: tuple[str, tuple[int, int] | None, int]) -> list[int]:
    """Return the most bytes by which a process grows that loads each part: its dtype, its layers, and its ranks."""
    fields = tuple(getattr(MIDDLE, name) for name in MIDDLE.__dataclass_fields__)
    command = [sys.executable, "-c", _MEASURED, repr((fields, source, parts))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return list(map(int, done.stdout.split()))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it reads /proc, and lets it forget a peak")
@pytest.mark.e2e
@pytest.mark.parametrize("stored", [False, True])
def test_loading_a_part_takes_little_more_than_the_part(stored: bool, tmp_path: Path) -> None:
    if stored:
        build(tmp_path, MIDDLE)
    whole, rank, stage, packed = peaks(
        str(tmp_path) if stored else "", ("fp32", None, 1), ("fp32", None, 4), ("fp32", (0, 4), 1), ("int4", None, 1)
    )
    assert whole == pytest.approx(MIDDLE.model.loading_bytes("fp32"), rel=0.2)
    assert rank < 1.4 * MIDDLE.model.loading_bytes("fp32", 4)
    assert whole / rank > 2
    assert whole / stage > 1.7
    assert whole / packed > 2
