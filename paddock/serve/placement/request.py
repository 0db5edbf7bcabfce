"""A request to place a model, and the policy that limits where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.models.model import Model
from paddock.serve.placement.device import Backend

Engine = Literal["llama.cpp", "vllm"]
MOST_DEVICES = 64
"""Devices of the largest group that is tried."""


@dataclass(frozen=True, slots=True)
class Request:
    """The model and its largest work. Without a `dtype` its weights stay as they are in its files.

    Those of a model by name are random, and written in int8 then. llama.cpp's int8 and int4 of a .gguf file of 16 bits
    are packed on the machine that serves it.
    """

    model: Model
    dtype: str | None = None
    context: int = 4096
    concurrency: int = 4


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits on the choice. `backend` None takes the one with most devices.

    `reserve` is the part of each device's memory that is left to others. `tensor_parallel` is the largest degree.
    `across_agents` lets a group of equal devices span agents. `mode` is the resource mode of the replicas, a name or a
    policy as JSON text; it decides nothing here. `share` is the part of a device's memory that it asks for next to
    others; None is the device alone. `engine` None is the one that the model's form takes. `server` is a llama-server
    and `python` the interpreter of vLLM's environment, each where the one that Paddock knows is not taken: what an
    agent says of its own does not count then. `quantization` is the way in which vLLM packs the weights as it loads.
    """

    backend: Backend | None = None
    reserve: float = 0.05
    tensor_parallel: int = MOST_DEVICES
    across_agents: bool = False
    mode: str = ""
    share: float | None = None
    engine: Engine | None = None
    server: str = ""
    python: str = ""
    quantization: str = ""
