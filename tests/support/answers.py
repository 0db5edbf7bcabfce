"""Answers of a model: several requests over its rows, and those of one device alone."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddock.bench.engine.protocol import Spec
from paddock.bench.engine.shapes import Shape

SHAPE = Shape("small", "llama", 64, 128, 4, 4, 2, 16, 300, False, max_length=128)
PROMPTS = [[11, 250, 7, 42, 99], [5], list(range(20, 50)), [3, 3, 3, 170], [200, 1, 200]]
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


def answers(rows: Any, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
    """Return the answers to all prompts, asked at once. Raises what the loop delivers instead of a token."""
    from paddock.serve.engine.loop import Loop

    loop = Loop(rows)
    events: list[queue.Queue[Any]] = [queue.Queue() for _ in prompts]
    for number, prompt in enumerate(prompts):
        loop.submit(prompt, new + number, events[number].put)
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


def alone(spec: Spec, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
    """Return the answers that one device gives to one prompt after the other."""
    import torch

    from paddock.bench.engine.torch_engine import TorchEngine

    engine = TorchEngine()
    engine.load(spec)
    results = []
    for number, prompt in enumerate(prompts):
        tokens = [engine.prefill(torch.tensor([prompt]))]
        while len(tokens) < new + number:
            tokens.append(engine.decode(tokens[-1]))
        results.append([int(token) for token in tokens])
    return results
