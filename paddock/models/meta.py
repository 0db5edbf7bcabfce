"""Tensors of a configuration as transformers makes them, on torch's device `meta`, which has no memory."""

from __future__ import annotations

import copy
import warnings
from importlib.util import find_spec
from typing import Any

from paddock.models.config import Configuration
from paddock.models.towers import Piece

_DROPPED = ("quantization_config", "compression_config", "model_type", "auto_map", "torch_dtype", "dtype")
"""Keys that would make other modules than the plain ones, or load code that came with the model."""


def transformers_version() -> str | None:
    """Return the version of transformers; None where it or torch is not installed."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version  # takes longer than this whole room

    try:
        return version("transformers")
    except PackageNotFoundError:
        return None


def pieces(config: Configuration) -> tuple[Piece, ...] | str:
    """Return the weights that the class of the model has, shared ones once; or why there is no such class.

    Code that came with the model never runs.
    """
    import torch
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _model(config, torch, transformers)
    except Exception as failed:  # a class's own checks raise what they like
        return f"{type(failed).__name__}: {' '.join(str(failed).split())[:200]}"
    finally:
        transformers.logging.set_verbosity(verbosity)
    seen: set[int] = set()
    found: list[Piece] = []
    for name, weight in model.named_parameters(remove_duplicate=False):
        if id(weight) not in seen:
            seen.add(id(weight))
            found.append((name, int(weight.numel()), weight.ndim > 1))
    return tuple(found)


def _model(config: Configuration, torch: Any, transformers: Any) -> Any:
    # A copy: configurations write into the mappings that they are given.
    values = {key: copy.deepcopy(value) for key, value in config.whole.items() if key not in _DROPPED}
    made = transformers.AutoConfig.for_model(str(config.whole.get("model_type")), **values)
    with torch.device("meta"):
        if config.is_multimodal:
            try:
                return transformers.AutoModelForImageTextToText.from_config(made)
            except ValueError:  # of a class that is not among them
                return transformers.AutoModelForCausalLM.from_config(made)
        return transformers.AutoModelForCausalLM.from_config(made)
