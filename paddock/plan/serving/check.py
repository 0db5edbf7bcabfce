"""Checks of served models against the shapes of models, which are beyond the fleet's own checks."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet import Fleet, FleetError, Problem, ServedModel, Stack
from paddock.fleet.errors import did_you_mean
from paddock.fleet.stackfile.configuration import FLEET
from paddock.models.model import tensor_parallel
from paddock.models.presets import PRESETS, preset
from paddock.plan.serving.fit import lacks_bf16


def check(stack: Stack) -> None:
    """Raise FleetError, with lines, where a served model cannot be what its settings say."""
    if problems := [problem for model in stack.fleet.served for problem in _problems(stack.fleet, model)]:
        raise FleetError(stack.locate(problems))


def _problems(fleet: Fleet, model: ServedModel) -> Iterator[Problem]:
    key = ("config", FLEET, "serving", "models", model.name)
    if model.model not in PRESETS:
        expected = f"one of {', '.join(PRESETS)}"
        yield Problem(
            (*key, "model"), f'there is no model "{model.model}"', expected, did_you_mean(model.model, PRESETS)
        )
        return
    shape = preset(model.model)
    if model.context > shape.context:
        yield Problem(
            (*key, "context"),
            f"{shape.name} was made for {shape.context} tokens",
            f"at most {shape.context}",
            f"write context: {shape.context}, or another model",
        )
    if tensor_parallel(shape, model.tensor_parallel) != model.tensor_parallel:
        degrees = sorted({tensor_parallel(shape, count) for count in range(1, 17)})
        yield Problem(
            (*key, "tensorParallel"),
            f"{model.tensor_parallel} does not divide {shape.name}: {shape.heads} heads, {shape.kv_heads} of keys and "
            f"values, inner size {shape.intermediate}",
            f"one of {', '.join(map(str, degrees))}",
            f"write tensorParallel: {max(degree for degree in degrees if degree < model.tensor_parallel)}",
        )
    if model.dtype == "bf16" and (pool := next((name for name in model.pools if lacks_bf16(fleet.pools[name])), None)):
        yield Problem(
            (*key, "dtype"),
            f"the {fleet.pools[pool].gpu.name} of pool {pool} has no bf16",
            "fp16, or a pool of newer GPUs",
            "leave dtype out: it is fp16 there",
        )
