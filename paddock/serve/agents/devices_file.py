"""A file of devices, YAML or JSON: machines that are planned before they are there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.catalog.gpus import Gpu as Model
from paddock.catalog.gpus import gpus
from paddock.errors import Problem
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import WITHOUT_BF16, Backend, Device
from paddock.validation import described, read_yaml

_EXAMPLE = "devices: [{agent: box, backend: cuda, index: 0, name: NVIDIA A10G, memory_mib: 23028}]"
_EXAMPLES = {"devices": _EXAMPLE, "memory_mib": "memory_mib: 23028"}
_Name = Annotated[str, Field(min_length=1, max_length=253)]
_Mib = Annotated[int, Field(ge=1, le=2**26)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Entry(_Strict):
    agent: _Name
    backend: Backend
    index: Annotated[int, Field(ge=0, le=1023)]
    memory_mib: _Mib
    free_mib: Annotated[int, Field(ge=0, le=2**26)] | None = None
    name: _Name | None = None
    bandwidth_gbs: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    unavailable: Annotated[str, Field(max_length=253)] = ""


class _File(_Strict):
    devices: Annotated[tuple[_Entry, ...], Field(min_length=1, max_length=4096)]


def read_devices(path: Path) -> tuple[Device, ...]:
    """Read a file of devices. Raises ServeInputError with its problems."""
    document = read_yaml(path, f"a file of devices, such as {_EXAMPLE}", ServeInputError)
    try:
        file = _File.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ServeInputError(described(error, _File, path, examples=_EXAMPLES)) from None
    if wrong := [str(dataclasses.replace(problem, file=str(path))) for problem in _contradictions(file)]:
        raise ServeInputError("\n".join(wrong))
    return tuple(map(_device, file.devices))


def _contradictions(file: _File) -> Iterator[Problem]:
    places: dict[tuple[str, str, int], int] = {}
    for number, entry in enumerate(file.devices):
        place = (entry.agent, entry.backend, entry.index)
        first = places.setdefault(place, number)
        if first != number:
            text = f"{entry.agent}/{entry.backend}:{entry.index} is also devices[{first}]"
            yield Problem(("devices", number, "index"), text, "each device once", "give it its own index")
        if entry.free_mib is not None and entry.free_mib > entry.memory_mib:
            text = f"{entry.free_mib} MiB are free of {entry.memory_mib}"
            yield Problem(("devices", number, "free_mib"), text, "at most memory_mib")


def _device(entry: _Entry) -> Device:
    model = _model(entry.name) if entry.backend == "cuda" else None
    return Device(
        entry.agent,
        entry.backend,
        entry.index,
        entry.memory_mib,
        entry.memory_mib if entry.free_mib is None else entry.free_mib,
        entry.name,
        entry.bandwidth_gbs or (model.bandwidth_gbs if model else None),
        lacks=WITHOUT_BF16 if model and model.supports("bf16") is False else (),
        unavailable=entry.unavailable,
    )


def _model(name: str | None) -> Model | None:
    """Return the catalogue's GPU of that product name, name or key."""
    return next((gpu for gpu in gpus().values() if name and name in (gpu.product, gpu.name, gpu.key)), None)
