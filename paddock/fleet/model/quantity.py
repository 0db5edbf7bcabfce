"""Quantities as whole numbers: CPU in millicores, memory and disk in MiB, delays in minutes."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_MEMORY = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|K|M|G|T)?$")
_BYTES = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, None: 1,
}  # fmt: skip
_DELAY = re.compile(r"^(\d{1,4})(m|h)$")
_CPU = re.compile(r"^(\d{1,9})m$|^(\d{1,6}(?:\.\d{1,3})?)$")


def parse_cpu(value: Any) -> int:
    """`3`, `"3"`, `2.5` or `"3500m"` -> millicores. Raises ValueError on anything else."""
    match = _CPU.match(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    millicores = 0 if match is None else int(match[1]) if match[1] else round(float(match[2]) * 1000)
    if millicores <= 0:
        raise ValueError(f"{_quoted(value)} is not an amount of CPU; write cores (3, 2.5) or millicores (3500m)")
    return millicores


def parse_memory(value: Any) -> int:
    """`"12Gi"` or `"512Mi"` -> MiB, rounded down. Raises ValueError on anything else."""
    match = _MEMORY.match(value) if isinstance(value, str) else None
    mebibytes = 0 if match is None else int(float(match[1]) * _BYTES[match[2]]) // 2**20
    if mebibytes <= 0:
        raise ValueError(
            f"{_quoted(value)} is not an amount of memory; write a number with its unit, such as 12Gi or 512Mi"
        )
    return mebibytes


def format_delay(minutes: int) -> str:
    """Write minutes as a stack file has them, `10m`."""
    return f"{minutes}m"


def parse_delay(value: Any) -> int:
    """`"10m"` or `"1h"` -> minutes, one to a day. Raises ValueError on anything else."""
    match = _DELAY.match(value) if isinstance(value, str) and not value.endswith("\n") else None
    minutes = 0 if match is None else int(match[1]) * (60 if match[2] == "h" else 1)
    if not 1 <= minutes <= 24 * 60:
        raise ValueError(
            f"{_quoted(value)} is not a delay of 1m to 24h; write a number with its unit, such as 10m or 1h"
        )
    return minutes


def _quoted(value: Any) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str)
        else "this"
        if isinstance(value, list | tuple | dict)
        else json.dumps(value)
    )


def format_cpu(millicores: int) -> str:
    """3000 -> `"3"`, 3500 -> `"3500m"`: the form Kubernetes itself prints."""
    return str(millicores // 1000) if millicores % 1000 == 0 else f"{millicores}m"


def format_memory(mebibytes: int) -> str:
    """12288 -> `"12Gi"`, 12300 -> `"12300Mi"`."""
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


Cpu = Annotated[
    int,
    BeforeValidator(parse_cpu),
    PlainSerializer(format_cpu),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\d+(m|\.\d{1,3})?$"}]}
    ),
]
"""CPU in millicores; written as cores or `3500m`."""

Memory = Annotated[
    int,
    BeforeValidator(parse_memory),
    PlainSerializer(format_memory),
    WithJsonSchema({"type": "string", "pattern": _MEMORY.pattern, "examples": ["12Gi"]}),
]
"""Memory or disk in MiB; written with its unit, such as `12Gi`."""

Delay = Annotated[
    int,
    BeforeValidator(parse_delay),
    PlainSerializer(format_delay),
    WithJsonSchema({"type": "string", "pattern": _DELAY.pattern, "examples": ["10m", "1h"]}),
]
"""Minutes; written with their unit, such as `10m` or `1h`."""
