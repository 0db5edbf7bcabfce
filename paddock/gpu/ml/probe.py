"""Print as JSON the GPUs that a framework sees: python probe.py FRAMEWORK.

This file runs alone inside a container or a virtual environment, under any Python from 3.8.
"""

from __future__ import annotations

import ctypes
import json
import sys
from importlib import import_module
from typing import Any


def main(framework: str) -> dict[str, Any]:
    """Return framework, version, count and UUIDs; `uuids` is None where the framework does not report them."""
    result = {"pytorch": pytorch, "tensorflow": tensorflow, "jax": jax}.get(framework, no_framework)()
    if result["uuids"] is None and result["count"] is None:
        result["error"] = "the CUDA driver library (libcuda.so.1) is missing"
    return result


def pytorch() -> dict[str, Any]:
    torch = import_module("torch")

    result = {"framework": "pytorch", "version": torch.__version__}
    metal = getattr(torch.backends, "mps", None)
    if not torch.cuda.is_available() and metal is not None and metal.is_available():
        return {**result, "count": 1, "uuids": None}
    count = torch.cuda.device_count()
    uuid_properties = [getattr(torch.cuda.get_device_properties(number), "uuid", None) for number in range(count)]
    hip = getattr(torch.version, "hip", None)
    uuids = None if hip else visible_uuids() if None in uuid_properties else [str(value) for value in uuid_properties]
    return {**result, "count": count, "uuids": uuids}


def tensorflow() -> dict[str, Any]:
    tf = import_module("tensorflow")

    count = len(tf.config.list_physical_devices("GPU"))
    return {"framework": "tensorflow", "version": tf.__version__, "count": count, "uuids": visible_uuids()}


def jax() -> dict[str, Any]:
    jax_ = import_module("jax")
    count = len([device for device in jax_.devices() if device.platform in ("gpu", "cuda", "rocm")])
    return {"framework": "jax", "version": jax_.__version__, "count": count, "uuids": visible_uuids()}


def no_framework() -> dict[str, Any]:
    """Return the GPUs that the CUDA driver shows to any program."""
    uuids = visible_uuids()
    return {"framework": "none", "version": None, "count": None if uuids is None else len(uuids), "uuids": uuids}


def visible_uuids() -> list[str] | None:
    """Return the UUIDs of the GPUs and MIG parts that CUDA_VISIBLE_DEVICES permits; None without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if cuda.cuInit(0):
        return []
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    uuids = []
    for number in range(count.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if cuda.cuDeviceGet(ctypes.byref(device), number) or get_uuid(ctypes.byref(uuid), device):
            continue
        text = bytes(uuid).hex()
        uuids.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return uuids


if __name__ == "__main__":
    try:
        result = main(sys.argv[1])
    except Exception as error:
        result = {"framework": sys.argv[1], "count": None, "uuids": None, "error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(result) + "\n")
