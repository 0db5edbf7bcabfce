#!/usr/bin/env bash
# What this machine has, measured, as JSON.
set -euo pipefail

driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)
toolkit=$(nvidia-ctk --version | sed -n 's/.* version //p' | sed -n 1p)
kubelet=$(kubelet --version | sed 's/.* v//; s/-eks.*//')

python3 - "$driver" "$(uname -r)" "$toolkit" "$kubelet" << 'PYTHON'
import ctypes, json, sys

driver, kernel, toolkit, kubelet = sys.argv[1:]
# The newest CUDA of the driver: from NVML, as the words of nvidia-smi's banner change with its releases.
nvml, number = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_int()
if nvml.nvmlInit_v2() or nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)):
    sys.exit("paddock: NVML does not say which CUDA the driver supports")
nvml.nvmlShutdown()
facts = {
    "driver": driver,
    "cuda": f"{number.value // 1000}.{number.value % 1000 // 10}",
    "kernel": kernel,
    "container_toolkit": toolkit,
    "kubernetes": ".".join(kubelet.split(".")[:2]),
    "kubelet": kubelet,
}
print(json.dumps(facts, indent=2))
PYTHON
