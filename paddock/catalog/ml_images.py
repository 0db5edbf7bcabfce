"""Container images and wheels of machine-learning frameworks, what each was built with, and arguments of vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from paddock.catalog import _data

_ARGUMENTS = "vllm_arguments.json"
"""Of the vLLM in Ray's image of Serve LLM: what Ray takes as `engine_kwargs`."""


@dataclass(frozen=True, slots=True)
class Build:
    """A framework's programs for one maker's GPUs: just one of `cuda`, `rocm` and `metal` says whose.

    The compute-capability range is that of the programs inside, None where no source names it.
    """

    framework: str
    version: str
    cuda: str | None
    rocm: str | None
    min_compute_capability: str | None
    max_compute_capability: str | None
    source: str
    metal: bool = False

    def runs_on(self, compute_capability: str) -> bool:
        """Return whether the range holds it; a range that no source names holds everything."""
        has = _data.version(compute_capability)
        low, high = self.min_compute_capability, self.max_compute_capability
        return (low is None or has >= _data.version(low)) and (high is None or has <= _data.version(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Build):
    """`image` is its name with a tag that does not move."""

    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheels(Build):
    """`packages` for pip, from `index`; None is the index that pip is set up for."""

    packages: tuple[str, ...]
    index: str | None


@cache
def images() -> tuple[Image, ...]:
    """Every image, of each framework the newest first."""
    return _data.records(Image, "ml_images.json", "images")


@cache
def wheels() -> tuple[Wheels, ...]:
    """Every set of wheels, of each framework the newest first."""
    return _data.records(Wheels, "ml_images.json", "wheels")


@dataclass(frozen=True, slots=True)
class EngineArgument:
    """An argument: kinds of YAML's values that it takes, and its choices where they are a closed list."""

    name: str
    part: str
    """`engine`, or `server` for those of its OpenAI server."""
    kinds: tuple[str, ...]
    choices: tuple[str | int, ...] = ()

    def takes(self, value: object) -> bool:
        """Return whether a value is of one of its kinds and among its choices; an integer is also a number."""
        kind = kind_of(value)
        fits = kind in self.kinds or (kind == "integer" and "number" in self.kinds)
        return fits and (not self.choices or kind not in ("text", "integer") or value in self.choices)


def kind_of(value: object) -> str:
    """Return the kind of a YAML value: text, integer, number, boolean, list, mapping or null."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "text"), (int, "integer"), (float, "number"), ((list, tuple), "list"), (Mapping, "mapping"),
    )  # fmt: skip
    return next((kind for type_, kind in kinds if isinstance(value, type_)), "value that YAML does not have")


@cache
def engine_arguments() -> Mapping[str, EngineArgument]:
    """Every argument by name (``"enable_prefix_caching"``)."""
    return _data.keyed(EngineArgument, "name", _ARGUMENTS)


@cache
def engine_version() -> str:
    """Return vLLM's version that the arguments are of."""
    return str(_data.document(_ARGUMENTS)["vllm"])
