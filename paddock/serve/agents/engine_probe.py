"""Print as JSON what llama.cpp says of itself: python engine_probe.py. This file runs alone, in the engine's Python."""

from __future__ import annotations

import json
import sys
from typing import Any

_BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "HIP": "rocm", "MTL": "metal", "Metal": "metal", "Vulkan": "vulkan"}


def main() -> dict[str, Any]:
    """Return the facts of `EngineFacts`."""
    try:
        import xllamacpp
    except ModuleNotFoundError:
        return {}
    except Exception as error:  # a library that cannot be loaded raises of any kind
        return {"error": f"xllamacpp cannot be loaded: {type(error).__name__}: {error}"}
    from importlib.metadata import version

    names = [str(device["name"]) for device in xllamacpp.get_device_info()]
    gpus = [_BACKENDS[head] for name in names for head in _BACKENDS if name.startswith(head)]
    return {"version": version("xllamacpp"), "gpus": gpus}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()) + "\n")
