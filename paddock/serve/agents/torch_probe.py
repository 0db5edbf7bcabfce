"""Print as JSON what torch says of itself: python torch_probe.py. This file runs alone, in the engine's Python."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> dict[str, Any]:
    """Return the facts of `TorchFacts`."""
    try:
        import torch
    except ModuleNotFoundError:
        return {}
    except Exception as error:  # a library that cannot be loaded raises of any kind
        return {"error": f"torch cannot be loaded: {type(error).__name__}: {error}"}
    metal = torch.backends.mps
    return {
        "version": torch.__version__,
        "cuda_build": torch.version.cuda,
        "rocm_build": torch.version.hip,
        "metal_build": bool(metal.is_built()),
        "devices": torch.cuda.device_count() or int(metal.is_available()),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()) + "\n")
