"""Models by name, from their published `config.json`: for plans, and for runs with random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddock.errors import did_you_mean
from paddock.models import config, formula
from paddock.models.errors import error
from paddock.models.model import Model

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    json.loads(Path(__file__).with_name("data").joinpath("presets.json").read_bytes())
)
"""Arguments of their transformers configuration, by name."""

_OF_HUB = re.compile(r"(?:https?://[^/]+/)?(\w[\w.-]*/\w[\w.-]*)(?:/(?:tree|blob|resolve)/([^/]+)(?:/(.+))?)?")
"""OWNER/REPO, or the address of its page or of a file of it."""
FACTS = "its published config.json"
"""Source of what is known of a model by name."""


@cache
def _preset(name: str) -> Model:
    return replace(formula.model(config.of(PRESETS[name], name), name), facts=FACTS)


def preset(name: str, where: str = "MODEL") -> Model:
    """Return the model of that name. Raises ModelError, begun by `where`, with the nearest name."""
    if name in PRESETS:
        return _preset(name)
    expected = did_you_mean(name, PRESETS, f"one of {', '.join(PRESETS)}, or a folder or .gguf file")
    hubs = _OF_HUB.fullmatch(name)
    fix = ""
    if hubs:
        repo, revision, file = hubs.groups()
        at = f"@{revision}" if revision and revision != "main" else ""
        fix = f"for one of a hub, name hf://{'/'.join(filter(None, (repo + at, file)))}"
    raise error(f"{where}: there is no model {name!r}", expected, fix)
