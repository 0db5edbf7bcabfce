"""A request to place a model, and the policy that limits where."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.models.model import Model
from paddock.models.shapes import Shape
from paddock.serve.placement.device import Backend, Device

MOST_DEVICES = 64
"""Devices of the largest group that is tried."""


@dataclass(frozen=True, slots=True)
class Request:
    """The model and its largest work. Without a `dtype` it is bf16, or fp16 on devices without bf16.

    `dtype` is also that of a .gguf file's weights, as near as Paddock's own engine has it.
    """

    model: Model
    dtype: str | None = None
    context: int = 4096
    concurrency: int = 4
    stored: bool = False
    """The weights are quantised in their file, and stay as they are: `dtype` is what computes with them."""

    @property
    def shape(self) -> Shape:
        """Shape of which Paddock's own engine builds its layers."""
        return Shape.of(self.model)

    @property
    def weights(self) -> str:
        """Format of the weights in words."""
        if self.stored and self.model.quantised:
            return self.model.format
        return self.dtype or "16-bit"

    def dtype_on(self, device: Device) -> str:
        """Return the number format of the weights on that device, or that in which quantised ones are multiplied."""
        if self.dtype:
            return self.dtype
        half = self.model.plain if self.model.quantised and self.model.plain == "fp16" else "bf16"
        return "fp16" if "bf16" in device.lacks else half


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits on the choice. `backend` None takes the one with most devices.

    `reserve` is the part of each device's memory that stays to others. `tensor_parallel` is the largest degree.
    `mode` is the resource mode of the replicas, a name or a policy as JSON text; it decides nothing here. `share` is
    the part of a device's memory that it asks for beside others; None is the device alone.
    `python` is the interpreter of another environment whose vLLM computes, empty for Paddock's own engine; it decides
    nothing here, either. `across_agents` lets a group of equal devices span agents. `pipeline` allows two stages on two
    backends, which is experimental.
    """

    backend: Backend | None = None
    reserve: float = 0.05
    tensor_parallel: int = MOST_DEVICES
    across_agents: bool = False
    pipeline: bool = False
    mode: str = ""
    share: float | None = None
    python: str = ""
