"""Models that this engine would answer wrongly, or cannot load: each is refused by name, with what would run it."""

from __future__ import annotations

from typing import Any

from paddock.models import config as configurations
from paddock.models.model import PLAIN, Model
from paddock.serve.errors import ServeInputError
from paddock.serve.own.protocol import Spec

_OTHERS = "vLLM has them (serve.load --engine vllm), and llama.cpp (serve.load --url, or bench --engine llama.cpp)"


def of_transformers(config: Any, name: str) -> Model:
    """Return what a configuration of transformers says of layers, heads and rope. Raises ModelError."""
    return configurations.model(configurations.of(config.get_text_config().to_dict(), name), name)


def refusal(model: Model, where: str = "--model") -> ServeInputError | None:
    """Return the error for a model whose tokens this engine would get wrong, or whose weights it cannot read.

    `where` begins it.
    """
    if model.rope.depends_on_length:
        return ServeInputError(
            f"{where}: the positions of {model.name} depend on how long the text is ({model.rope.type}), and this "
            "engine computes them once\n    expected: positions of another kind, such as llama3, linear or yarn\n"
            f"    fix: {_OTHERS}"
        )
    if model.quantised and model.facts != "file":
        return ServeInputError(
            f"{where}: the weights of {model.name} are quantised already ({model.format}), and this engine packs plain "
            "ones itself\n    expected: the checkpoint in bf16, fp16 or fp32, or a .gguf file\n"
            "    fix: serve.load --engine vllm, which computes in that format"
        )
    return None


def packing_refusal(model: Model, dtype: str) -> ServeInputError | None:
    """Return the error for a format in which the experts of a model would stay as they are."""
    if not model.experts or dtype in PLAIN:
        return None
    return ServeInputError(
        f"--dtype {dtype}: {model.name} is a mixture of experts, and experts are not packed here"
        f"\n    expected: one of {', '.join(PLAIN)}\n    fix: weights that are quantised already, in vLLM or llama.cpp"
    )


def serving_refusal(model: Model, where: str = "--model") -> ServeInputError | None:
    """Return the error for a model that a replica of this engine cannot serve."""
    return refusal(model, where) or rows_refusal(model, where)


def rows_refusal(model: Model, where: str = "--model") -> ServeInputError | None:
    """Return the error for a model for which the rows of a replica have no cache: they keep every token of each layer.

    `bench` computes such models with the cache of transformers, and is right.
    """
    kinds = {layer.kind for layer in model.layers}
    if "sliding" in kinds:
        why = "layers that see a window of the tokens alone (sliding attention)"
    elif kinds & {"recurrent", "none"}:
        why = "layers without attention"
    elif "latent" in kinds:
        why = "a latent cache"
    else:
        return None
    return ServeInputError(
        f"{where}: {model.name} has {why}, which the replicas of this engine do not keep"
        f"\n    expected: full attention in every layer\n    fix: {_OTHERS}"
    )


def check(model: Model, spec: Spec) -> None:
    """Raise ServeInputError for a model that is refused, or a format in which it cannot be packed."""
    if error := refusal(model) or packing_refusal(model, spec.dtype):
        raise error
