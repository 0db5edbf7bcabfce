"""A model by its name, its checkpoint's folder or its .gguf file: what it is, before anything is loaded.

The weights are counted by the file's own table where there is one; else by transformers on the meta device, where torch
is installed; else by a formula, for the kinds it is right for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from paddock.console.output import caller_path
from paddock.models import config as configurations
from paddock.models import formula, gguf, meta, presets, safetensors
from paddock.models.config import Configuration
from paddock.models.errors import ModelError, error
from paddock.models.local import hub
from paddock.models.model import Model, billions
from paddock.models.tensors import stored_format, weighed

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")
_DIFFERS = 0.02
"""Part by which table and configuration may differ before it is reported."""


def model(name: str, where: str = "MODEL") -> Model:
    """Return the model of a preset, a folder, a .gguf file or `hf://…`. Raises ModelError, begun by `where`."""
    if hub.is_reference(name):
        with hub.heads(name, where) as path:
            return replace(of_path(path, name, where), name=name.removeprefix(hub.PREFIX))
    path = caller_path(name)
    try:
        there = bool(name) and path.exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    return (
        of_path(path, name, where)
        if there or (path.suffix == ".gguf" and "://" not in name)
        else presets.preset(name, where)
    )


def of_path(path: Path, name: str = "", where: str = "MODEL") -> Model:
    """Return the model of a checkpoint's folder or a .gguf file. Raises ModelError, begun by `where`."""
    if path.is_dir():
        return checkpoint(path, name, where)
    if path.suffix == ".safetensors":
        raise error(
            f"{where}: {path} is a file of weights, which does not say what model they are of",
            "the folder that it is in, with its config.json",
            f"name {path.parent}",
        )
    return gguf.read(path, where)


def checkpoint(folder: Path, name: str = "", where: str = "MODEL") -> Model:
    """Return the model of a checkpoint's folder. Raises ModelError, begun by `where`."""
    name = name or folder.name
    if not (folder / "config.json").is_file() and (files := sorted(folder.glob("*.gguf"))):
        raise error(
            f"{where}: {folder} has no config.json, and {len(files)} .gguf file{'s' * (len(files) > 1)}",
            "a checkpoint's folder, or one .gguf file",
            f"name {files[0]}",
        )
    config = configurations.read(folder, where)
    found = configurations.model(config, name)
    if not safetensors.has_weights(folder):
        return of_configuration(config, name)
    found = replace(found, tokenizer=any((folder / file).is_file() for file in _TOKENIZERS), template=_template(folder))
    tensors, shards = safetensors.read(folder, config.quantisation, where)
    counted = replace(weighed(found, tensors, "file", "file"), files=shards)
    if config.quantisation is None:
        format_, quantised = stored_format(counted.types)
        counted = replace(counted, format=format_, quantised=quantised)
    return replace(counted, notes=(*counted.notes, *_disagreement(config, counted)))


def of_configuration(config: Configuration, name: str) -> Model:
    """Return the model of a configuration alone, by transformers where torch is, else by formula. Raises ModelError."""
    version, why = meta.transformers_version(), ""
    if version is not None and not formula.knows(config.architecture):
        config = meta.filled(config)
    found = configurations.model(config, name)
    if version is not None:
        made = meta.pieces(config)
        if isinstance(made, str) and config.is_multimodal:
            why, made = made, meta.pieces(config, text_only=True)
            found = replace(found, notes=(*found.notes, f"what reads images and sound is not counted: {why}"))
        if not isinstance(made, str):
            return weighed(found, formula.tensors(config, made), f"transformers {version}", "formula")
        why = why or made
    try:
        return formula.model(config, name)
    except ModelError as refused:
        if not why:
            raise
        raise ModelError(f"{refused}\n    transformers {version}: {why}") from None


def _template(folder: Path) -> bool:
    if any(folder.glob("chat_template.*")) or (folder / "tekken.json").is_file():
        return True
    try:
        return b'"chat_template"' in (folder / "tokenizer_config.json").read_bytes()
    except OSError:
        return False


def _disagreement(config: Configuration, counted: Model) -> Iterable[str]:
    """Yield what the configuration says otherwise than the table, where a formula knows its kind."""
    if not formula.knows(config.architecture):
        return
    try:
        expected = formula.model(replace(config, quantisation=None), counted.name).parameters
    except ModelError:
        return
    if abs(counted.parameters - expected) > _DIFFERS * max(expected, 1):
        yield (
            f"the files hold {billions(counted.parameters)} parameters, and config.json describes "
            f"{billions(expected)}: the files are taken as right"
        )
