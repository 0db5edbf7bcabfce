"""Stand-in for torch on a GPU: the documents of a healthy H100, or of one with the fault that the environment names.

`FAULTS` is JSON: a fault by beginning of UUID. Where `TRACE` names a folder, each stage leaves the time of its work
there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's own folder comes first there, and not the project's
    sys.path.insert(0, str(Path(__file__).parents[2]))
from paddock import children

_GIB = 1 << 30
HEALTHY: dict[str, dict[str, Any]] = {
    "memory": {"bytes": 8 * _GIB, "total": 80 * _GIB, "wrong": 0, "faults": {}},
    "gemm": {
        "precision": "bf16", "size": 8192, "tflops": 790.0, "wrong": 0, "checksum": "aaaa", "right_checksum": "aaaa",
    },
    "transfer": {"memory_gbs": 2600.0, "to_device_gbs": 55.0, "to_host_gbs": 54.0, "wrong": 0},
    "load": {"tflops": [800.0, 795.0, 790.0, 790.0], "wrong": 0, "products": 4, "size": 8192, "seconds": 5.0},
}  # fmt: skip
UNUSABLE = {"unusable": "torch 2.9 is built for the CPU alone", "fix": "another --python"}
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "memory": ("memory", {"wrong": 3, "faults": {"ones": {"wrong": 3, "first": [7, 8, 9]}}}),
    "wrong-product": ("gemm", {"wrong": 1}),
    "other-checksum": ("gemm", {"checksum": "bbbb"}),
    "slow": ("gemm", {"tflops": 300.0}),
    "rather-slow": ("gemm", {"tflops": 500.0}),
    "narrow-link": ("transfer", {"to_device_gbs": 12.0}),
    "half-link": ("transfer", {"to_device_gbs": 27.0, "to_host_gbs": 27.0}),
    "slow-memory": ("transfer", {"memory_gbs": 1200.0}),
    "fades": ("load", {"tflops": [800.0, 790.0, 500.0, 490.0]}),
    "changes": ("load", {"wrong": 5}),
    "device-error": ("memory", {"error": "CUDA error: an illegal memory access was encountered"}),
    "no-fabric": ("memory", {"error": "CUDA cannot start: 802", "action": "reboot", "fix": "start it"}),
    "unreadable": ("gemm", {"tflops": "fast"}),
}
ENDINGS = {"crashes": signal.SIGABRT, "is-killed": signal.SIGKILL}
OF_PROCESSES = {*ENDINGS, "crashes-early", "loads-for-ever"}
"""Faults that only a process can have."""
SLOW_PAIR, NOT_DIRECT = {"gbs": 150.0}, {"direct": False}


def document(name: str, fault: str | None, gpus: int) -> dict[str, Any]:
    if fault == "cpu-only-torch":
        return UNUSABLE
    if name == "allreduce":
        wrong = 4 if fault == "bad-sum" else 0
        return {"ranks": gpus, "bytes": 4 * _GIB, "busbw_gbs": 300.0 if fault == "slow-sum" else 400.0, "wrong": wrong}
    if name == "peers":
        pairs: list[dict[str, Any]] = [
            {"from": a, "to": b, "gbs": 350.0, "direct": True, "wrong": 0}
            for a in range(gpus)
            for b in range(gpus)
            if a != b
        ]
        pairs[0] |= SLOW_PAIR if fault == "slow-pair" else NOT_DIRECT if fault == "detour" else {}
        return {"pairs": pairs}
    changed = FAULTS[fault][1] if fault in FAULTS and FAULTS[fault][0] == name else {}
    return HEALTHY[name] | changed


def asked(environ: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the GPUs, and their fault."""
    uuids = environ["CUDA_VISIBLE_DEVICES"].split(",")
    faults = json.loads(environ.get("FAULTS", "{}"))
    return uuids, next((faults[start] for start in faults if any(uuid.startswith(start) for uuid in uuids)), None)


def main(name: str) -> None:
    uuids, fault = asked(os.environ)
    if fault == "crashes-early":
        os.abort()
    if fault == "loads-for-ever":
        time.sleep(600)
    sys.stdout.write("a library's own words\n" + json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    assert children.next_line() == "go"
    children.end_with_parent()
    begin = time.time()
    if fault == "hangs" and name == "gemm":
        subprocess.run(["sleep", "600"], check=False)
    if fault in ENDINGS and name == "gemm":
        os.kill(os.getpid(), ENDINGS[fault])
    if trace := os.environ.get("TRACE"):
        time.sleep(0.1)
        Path(trace, f"{name} {uuids[0]}").write_text(f"{begin} {time.time()}")
    sys.stdout.write(json.dumps(document(name, fault, len(uuids))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
