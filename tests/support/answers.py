"""Answers of a model: several requests over its rows, and those of one device alone."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.models.shapes import Shape, shape
from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.own.protocol import Spec

SMALL = replace(shape("tiny"), hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, vocabulary=512)
SHAPE = Shape("small", "llama", 64, 128, 4, 4, 2, 16, 300, False, max_length=128)
PROMPTS = [[11, 250, 7, 42, 99], [5], list(range(20, 50)), [3, 3, 3, 170], [200, 1, 200]]
WARM = Sampling(temperature=1.5, seed=7)
SECONDS = 240


def write_checkpoint(folder: Path) -> str:
    """Write a checkpoint whose weights are far enough apart that its answers vary, and return the folder."""
    import torch
    import transformers

    torch.manual_seed(3)
    arguments = {**SHAPE.config(), "initializer_range": 0.4}
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def answers(rows: Any, prompts: Sequence[Sequence[int]], new: int, sampling: Sampling = GREEDY) -> list[list[int]]:
    """Return the answers to all prompts, asked at once. Raises what the loop delivers instead of a token."""
    from paddock.serve.engine.loop import Loop

    loop = Loop(rows)
    events: list[queue.Queue[Any]] = [queue.Queue() for _ in prompts]
    for number, prompt in enumerate(prompts):
        loop.submit(prompt, new + number, events[number].put, (), sampling)
    results = []
    for waiting in events:
        tokens: list[int] = []
        while True:
            event = waiting.get(timeout=SECONDS)
            if isinstance(event, Exception):
                raise event
            tokens.append(event.id)
            if event.finish:
                break
        results.append(tokens)
    loop.close()
    return results


def drawn_on_one_device(spec: Spec, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
    """Return the answers of one device, drawn with the seed of `WARM`."""
    from paddock.serve.engine.torch_rows import TorchRows
    from paddock.serve.own.torch_engine import TorchEngine

    engine = TorchEngine()
    engine.load(spec)
    return answers(TorchRows(engine, len(prompts), spec.length), prompts, new, WARM)


def alone(spec: Spec, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
    """Return the answers that one device gives to one prompt after the other."""
    import torch

    from paddock.serve.own.torch_engine import TorchEngine

    engine = TorchEngine()
    engine.load(spec)
    results = []
    for number, prompt in enumerate(prompts):
        tokens = [engine.prefill(torch.tensor([prompt]))]
        while len(tokens) < new + number:
            tokens.append(engine.decode(tokens[-1]))
        results.append([int(token) for token in tokens])
    return results
