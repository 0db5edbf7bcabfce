"""Stand-in for torch on a GPU: the documents of a healthy H100, or of one with the fault that the environment names.

`FAULTS` is JSON: a fault by beginning of UUID.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HEALTHY: dict[str, dict[str, Any]] = {
    "memory": {"bytes": 1 << 33, "wrong": 0, "faults": {}},
    "gemm": {"precision": "bf16", "size": 8192, "tflops": 790.0, "wrong": 0, "checksum": "aaaa"},
    "transfer": {"memory_gbs": 2600.0, "to_device_gbs": 55.0, "to_host_gbs": 54.0, "wrong": 0},
    "load": {"tflops": [800.0, 795.0, 790.0, 790.0], "wrong": 0, "seconds": 5.0},
    "allreduce": {"ranks": 2, "busbw_gbs": 400.0, "wrong": 0},
    "peers": {"pairs": [{"from": 0, "to": 1, "gbs": 350.0, "direct": True, "wrong": 0}]},
}
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "memory": ("memory", {"wrong": 3, "faults": {"ones": {"wrong": 3, "first": [7, 8, 9]}}}),
    "wrong-product": ("gemm", {"wrong": 1}),
    "other-checksum": ("gemm", {"checksum": "bbbb"}),
    "slow": ("gemm", {"tflops": 300.0}),
    "rather-slow": ("gemm", {"tflops": 500.0}),
    "narrow-link": ("transfer", {"to_device_gbs": 12.0}),
    "slow-memory": ("transfer", {"memory_gbs": 1200.0}),
    "fades": ("load", {"tflops": [800.0, 790.0, 500.0, 490.0]}),
    "bad-sum": ("allreduce", {"wrong": 4}),
    "device-error": ("memory", {"error": "CUDA error: an illegal memory access was encountered"}),
}


def main(name: str) -> None:
    uuid = os.environ["CUDA_VISIBLE_DEVICES"]
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    fault = next((fault for beginning, fault in faults.items() if uuid.startswith(beginning)), None)
    if fault == "hangs" and name == "gemm":
        time.sleep(600)
    if fault == "crashes" and name == "gemm":
        os.abort()
    document = dict(HEALTHY[name])
    if fault in FAULTS and FAULTS[fault][0] == name:
        document |= FAULTS[fault][1]
    sys.stdout.write("a library's own words\n" + json.dumps(document) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
