"""Tensors of a configuration as transformers makes them, on torch's device `meta`, which has no memory."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from paddock.models.config import Configuration
from paddock.models.towers import Piece

_DROPPED = ("quantization_config", "compression_config", "model_type", "auto_map", "torch_dtype", "dtype")
"""Keys that would make other modules than the plain ones, or load code that came with the model."""

_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "vocab_size", "max_position_embeddings", "tie_word_embeddings")  # fmt: skip


def transformers_version() -> str | None:
    """Return the version of transformers; None where it or torch is not installed."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version  # takes longer than this whole room

    try:
        return version("transformers")
    except PackageNotFoundError:
        return None


def filled(config: Configuration) -> Configuration:
    """Return the configuration with what its class takes by default, and the kinds of its layers; as it is without."""
    import transformers

    try:
        with quiet():
            made = _made(config, transformers).get_text_config()
            values = {**made.to_dict(), **{key: getattr(made, key, None) for key in _KEYS}}
            kinds = getattr(made, "layer_types", None) or getattr(made, "layers_block_type", None)
    except Exception:  # a class's own checks raise what they like, and `pieces` says it
        return config
    values["layer_types"] = kinds if isinstance(kinds, list) else None
    return replace(config, text={**{key: item for key, item in values.items() if item is not None}, **config.text})


def pieces(config: Configuration, *, text_only: bool = False) -> tuple[Piece, ...] | str:
    """Return the weights that the class of the model has, shared ones once; or why there is no class for it.

    Code that came with the model never runs. `text_only` leaves out towers of images and sound.
    """
    import torch
    import transformers

    try:
        with quiet():
            model = _model(config, text_only, torch, transformers)
    except Exception as failed:  # a class's own checks raise what they like
        return f"{type(failed).__name__}: {' '.join(str(failed).split()).partition('. ')[0][:200]}"
    seen: set[int] = set()
    found: list[Piece] = []
    for name, weight in model.named_parameters(remove_duplicate=False):
        if id(weight) not in seen:
            seen.add(id(weight))
            found.append((name, int(weight.numel()), weight.ndim > 1))
    return tuple(found)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers and what it warns of."""
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def _made(config: Configuration, transformers: Any) -> Any:
    # A copy: configurations write into the mappings that they are given.
    values = {key: copy.deepcopy(value) for key, value in config.whole.items() if key not in _DROPPED}
    return transformers.AutoConfig.for_model(str(config.whole.get("model_type")), **values)


def _model(config: Configuration, text_only: bool, torch: Any, transformers: Any) -> Any:
    made = _made(config, transformers)
    if text_only:
        made = made.get_text_config()
    with torch.device("meta"):
        if config.is_multimodal and not text_only:
            try:
                return transformers.AutoModelForImageTextToText.from_config(made)
            except ValueError:  # of a class that is not among them
                return transformers.AutoModelForCausalLM.from_config(made)
        return transformers.AutoModelForCausalLM.from_config(made)
