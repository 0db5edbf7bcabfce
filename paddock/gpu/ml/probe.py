"""Says as JSON which GPUs a framework sees: python ml_seen.py FRAMEWORK.

This file alone is run inside a container or a virtual environment, by whatever Python is there (3.8 or newer).
"""

from __future__ import annotations

import ctypes
import json
import sys
from importlib import import_module
from typing import Any


def main(framework: str) -> dict[str, Any]:
    """`uuids` is None where they cannot be told; then `count` is all that is known."""
    found = {"pytorch": pytorch, "tensorflow": tensorflow, "jax": jax}.get(framework, nothing)()
    if found["uuids"] is None and found["count"] is None:
        found["error"] = "the CUDA driver library (libcuda.so.1) is not there"
    return found


def pytorch() -> dict[str, Any]:
    torch = import_module("torch")

    about = {"framework": "pytorch", "version": torch.__version__}
    metal = getattr(torch.backends, "mps", None)
    if not torch.cuda.is_available() and metal is not None and metal.is_available():
        return {**about, "count": 1, "uuids": None}
    count = torch.cuda.device_count()
    told = [getattr(torch.cuda.get_device_properties(number), "uuid", None) for number in range(count)]
    hip = getattr(torch.version, "hip", None)
    uuids = None if hip else driver() if None in told else [str(one) for one in told]
    return {**about, "count": count, "uuids": uuids}


def tensorflow() -> dict[str, Any]:
    tf = import_module("tensorflow")

    count = len(tf.config.list_physical_devices("GPU"))
    return {"framework": "tensorflow", "version": tf.__version__, "count": count, "uuids": driver()}


def jax() -> dict[str, Any]:
    jax_ = import_module("jax")
    count = len([one for one in jax_.devices() if one.platform in ("gpu", "cuda", "rocm")])
    return {"framework": "jax", "version": jax_.__version__, "count": count, "uuids": driver()}


def nothing() -> dict[str, Any]:
    """No framework: what the CUDA driver shows any program."""
    uuids = driver()
    return {"framework": "none", "version": None, "count": None if uuids is None else len(uuids), "uuids": uuids}


def driver() -> list[str] | None:
    """The UUIDs of the GPUs and MIG parts that CUDA_VISIBLE_DEVICES leaves."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if cuda.cuInit(0):
        return []
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    found = []
    for number in range(count.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if cuda.cuDeviceGet(ctypes.byref(device), number) or ask(ctypes.byref(uuid), device):
            continue
        text = bytes(uuid).hex()
        found.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return found


if __name__ == "__main__":
    try:
        said = main(sys.argv[1])
    except Exception as error:
        said = {"framework": sys.argv[1], "count": None, "uuids": None, "error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(said) + "\n")
