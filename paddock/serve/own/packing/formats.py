"""Number formats of weights, and which of them a device computes with."""

from __future__ import annotations

from paddock.serve.errors import ServeInputError

FORMATS = ("fp32", "fp16", "bf16", "int8", "int4")
_BF16_FROM = (8, 0)
"""Compute capability from which NVIDIA's GPUs have bf16."""

Capability = tuple[int, int] | None


def has_bf16(kind: str, capability: Capability) -> bool:
    """Return whether a device, `kind` being torch's name for it, has bf16; an unknown capability is taken to."""
    return kind != "cuda" or capability is None or capability >= _BF16_FROM


def plain_format(kind: str, capability: Capability) -> str:
    """Return the format of 16 bits in which the device computes."""
    return "bf16" if has_bf16(kind, capability) else "fp16"


def default_formats(kind: str, capability: Capability) -> tuple[str, ...]:
    """Return the formats that are measured where none is asked for."""
    return ("bf16", "int8", "int4") if has_bf16(kind, capability) else ("fp16", "int8")


def refusal(dtype: str, kind: str, capability: Capability) -> ServeInputError | None:
    """Return the error for a format that the device lacks; None for one that it has."""
    if dtype not in ("bf16", "int4") or has_bf16(kind, capability):
        return None
    major, minor = capability or (0, 0)
    return ServeInputError(
        f"--dtype {dtype}: this GPU, of compute capability {major}.{minor}, has no bf16\n"
        "    expected: fp16, int8 or fp32; bf16, and int4 which computes in it, need compute capability 8.0"
    )
