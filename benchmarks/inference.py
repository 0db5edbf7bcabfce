#!/usr/bin/env python3
"""Decode speed of the benchmark's engines beside transformers and llama.cpp, as ratios of runs in turn in one process.

    .venv/bin/python benchmarks/inference.py [--runs N] [--model tinyllama-1.1b] > benchmarks/results/inference_cpu.json
    .venv/bin/python benchmarks/inference.py --gpu [--model llama-3.1-8b] > benchmarks/results/inference_h200.json

Weights are random and of the model's published shape. Prints one JSON document: each measurement with the median ratio
of seconds, the range and the goal, and the bandwidth of reads that was measured beside it. Needs the lock `bench`, and
for the lines of llama.cpp the lock `llama`. With --gpu it holds the GPU of this machine against its own limits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import inference_gpu
import torch
import transformers
from side_by_side import paired, report, rounded

from paddock.bench.measurement.environment import environment
from paddock.bench.runner.loop import Timer, measure
from paddock.bench.runner.roof import Roof
from paddock.gpu.inventory import inventory
from paddock.models.shapes import Shape, shape
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine

_PROMPT, _NEW = 8, 17
_CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each, after one that is not")
    parser.add_argument("--model", help="by default tinyllama-1.1b, and llama-3.1-8b on a GPU")
    parser.add_argument("--gpu", action="store_true", help="measure the GPU of this machine")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="with --gpu: rows that are decoded at once")
    arguments = parser.parse_args()
    if arguments.gpu:
        model = arguments.model or "llama-3.1-8b"
        print(json.dumps(inference_gpu.measure(model, arguments.runs, tuple(arguments.batch)), indent=1))
        return
    before = environment(inventory())
    model, runs = shape(arguments.model or "tinyllama-1.1b"), arguments.runs
    ours = {dtype: engine(model, dtype) for dtype in ("bf16", "int8", "int4")}
    theirs = generation(model)
    roof = Roof(_CPU)

    def ratio(name: str, goal: float, first: Callable[[], float], second: Callable[[], float]) -> dict[str, object]:
        before = roof.read_gbs()
        result = paired(name, goal, runs, first, second)
        reads = sorted([*before, *roof.read_gbs()])
        return {**result, "read_gbs": [rounded(reads[0]), rounded(reads[-1])]}

    results = [
        ratio("decode step of ours in bf16 / of transformers' generate in bf16", 1 / 1.5, ours["bf16"], theirs),
        ratio("decode step of ours in int4 / of transformers' generate in bf16", 1 / 3.5, ours["int4"], theirs),
        ratio("decode step in int8 / in bf16", 1.0, ours["int8"], ours["bf16"]),
        ratio("decode step in int4 / in int8", 1.0, ours["int4"], ours["int8"]),
    ]
    if find_spec("llama_cpp"):
        with tempfile.TemporaryDirectory() as folder:
            for dtype, kind in (("bf16", "BF16"), ("int8", "Q8_0"), ("int4", "Q4_0")):
                file = write_gguf(Path(folder) / f"{kind}.gguf", model, kind)
                alone, inside = llama_alone(file), llama_engine(model, file)
                results.append(
                    ratio(f"decode step of ours in {dtype} / of llama.cpp in {kind}", 1.0, ours[dtype], alone)
                )
                results.append(
                    ratio(f"decode step of our llama.cpp engine / of llama.cpp, {kind}", 1.03, inside, alone)
                )
    report([*results, overhead(model)], model=model.name, environment=before)


def overhead(model: Shape) -> dict[str, object]:
    """Return the part of a decode step that the harness takes, of a model of this size."""
    loaded = TorchEngine()
    loaded.load(Spec(model, "int4", "cpu", 1, _PROMPT + _NEW))
    samples = measure(
        loaded, lambda _: torch.randint(1, model.vocabulary, (1, _PROMPT)), Timer(), new=_NEW, runs=3, warm_up=1
    )
    part = samples.overhead
    return {"name": "harness / decode step in int4", "ratio": rounded(part), "goal": "<= 0.01", "met": part <= 0.01}


def engine(model: Shape, dtype: str) -> Callable[[], float]:
    """Return a run of our engine that gives the mean seconds of a step."""
    loaded = TorchEngine()
    loaded.load(Spec(model, dtype, "cpu", 1, _PROMPT + _NEW))
    return _steps(loaded, model)


def generation(model: Shape) -> Callable[[], float]:
    """Return a run of transformers' own `generate` that gives the mean seconds of a step."""
    arguments = model.config()
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    with torch.device(_CPU), transformers.initialization.no_init_weights():
        loaded = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.uniform_(-0.02, 0.02) if parameter.ndim > 1 else parameter.fill_(1)
    ids = torch.randint(1, model.vocabulary, (1, _PROMPT))

    def run() -> float:
        marks: list[float] = []

        def mark(*_: object, **__: object) -> torch.Tensor:
            marks.append(time.perf_counter())
            return torch.zeros(1, dtype=torch.bool)

        with torch.inference_mode():
            loaded.generate(
                ids, max_new_tokens=_NEW, min_new_tokens=_NEW, do_sample=False, stopping_criteria=[mark],
                attention_mask=torch.ones_like(ids), pad_token_id=0,
            )  # fmt: skip
        return (marks[-1] - marks[0]) / (len(marks) - 1)

    return run


def llama_engine(model: Shape, file: Path) -> Callable[[], float]:
    """Return a run of llama.cpp behind our four calls."""
    from paddock.serve.own.llama_engine import LlamaEngine

    loaded = LlamaEngine()
    loaded.load(Spec(model, "int8", "cpu", 1, _PROMPT + _NEW, str(file)))
    return _steps(loaded, model)


def llama_alone(file: Path) -> Callable[[], float]:
    """Return a run of llama.cpp's own C API, which gives the mean seconds of a step."""
    import ctypes

    import llama_cpp

    loaded = llama_cpp.Llama(
        str(file), n_ctx=_PROMPT + _NEW, n_threads=torch.get_num_threads(), n_threads_batch=torch.get_num_threads(),
        verbose=False,
    )  # fmt: skip

    def run() -> float:
        loaded.reset()
        loaded.eval(list(range(1, _PROMPT + 1)))
        token = (ctypes.c_int32 * 1)(5)
        start = time.perf_counter()
        for _ in range(_NEW - 1):
            llama_cpp.llama_decode(loaded.ctx, llama_cpp.llama_batch_get_one(token, 1))
        return (time.perf_counter() - start) / (_NEW - 1)

    return run


def write_gguf(path: Path, model: Shape, kind: str) -> Path:
    """Write a GGUF file of the shape with random weights and an invented vocabulary."""
    import gguf
    import numpy as np

    random = np.random.default_rng(0)
    quantisation = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(model.layers)
    writer.add_context_length(model.max_length)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.intermediate)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"piece{number}" for number in range(3, model.vocabulary))])
    writer.add_token_scores([0.0] * model.vocabulary)
    writer.add_token_types([2, 3, 3, *[1] * (model.vocabulary - 3)])
    keys = model.kv_heads * model.head_dim
    queries = model.heads * model.head_dim
    layer = {
        "attn_q": (queries, model.hidden), "attn_k": (keys, model.hidden), "attn_v": (keys, model.hidden),
        "attn_output": (model.hidden, queries), "ffn_gate": (model.intermediate, model.hidden),
        "ffn_up": (model.intermediate, model.hidden), "ffn_down": (model.hidden, model.intermediate),
    }  # fmt: skip
    tensors: dict[str, Any] = {
        "token_embd": (model.vocabulary, model.hidden),
        "output": (model.vocabulary, model.hidden),
    }
    tensors |= {f"blk.{number}.{name}": size for number in range(model.layers) for name, size in layer.items()}
    packed: dict[tuple[int, ...], Any] = {}
    for name, size in tensors.items():
        if size not in packed:  # the same numbers for equal sizes: their values take no time of a step
            packed[size] = gguf.quantize(random.uniform(-0.02, 0.02, size).astype(np.float32), quantisation)
        writer.add_tensor(f"{name}.weight", packed[size], raw_dtype=quantisation)
    norms = [f"blk.{number}.{name}" for number in range(model.layers) for name in ("attn_norm", "ffn_norm")]
    for name in ("output_norm", *norms):
        writer.add_tensor(f"{name}.weight", np.ones(model.hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _steps(loaded: Any, model: Shape) -> Callable[[], float]:
    def run() -> float:
        samples = measure(
            loaded, lambda _: torch.randint(1, model.vocabulary, (1, _PROMPT)), Timer(), new=_NEW, runs=1, warm_up=0
        )
        return samples.wall[0] / (_NEW - 1)

    return run


if __name__ == "__main__":
    main()
