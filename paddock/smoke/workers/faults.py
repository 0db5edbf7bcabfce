"""Reasons why a program gave no result: a device that fails, or a machine on which it cannot be tested."""

from __future__ import annotations

from typing import Any

_REPORT = "it is a fault of the test: report it with this sentence"
_VERSIONS = "give --python an interpreter whose torch is built for this driver and GPU"
_MEMORY = "end what else has the memory; a container may need a higher limit"
_GPU_MEMORY = "end the programs on the GPU: `nvidia-smi` lists them"
_SHARED = "NCCL_DEBUG=INFO says more; a container needs 1 GiB or more at /dev/shm (docker run --shm-size=1g)"

_UNUSABLE: tuple[tuple[str, str], ...] = (
    # torch/cuda/__init__.py
    ("not compiled with cuda", _VERSIONS),
    ("libcudart functions unavailable", _VERSIONS),
    # c10/cuda/CUDAFunctions.cpp
    ("driver on your system is too old", _VERSIONS),
    ("found no nvidia driver", "install the driver; a container needs the NVIDIA runtime (docker run --gpus all)"),
    ("no cuda gpus are available", "look at CUDA_VISIBLE_DEVICES and at the GPUs that the container was given"),
    # Texts of the CUDA runtime: cudaErrorNoDevice, NoKernelImageForDevice, InvalidDeviceFunction,
    # UnsupportedPtxVersion, CompatNotSupportedOnDevice, SystemDriverMismatch
    ("no cuda-capable device", "look at CUDA_VISIBLE_DEVICES and at the GPUs that the container was given"),
    ("no kernel image is available", _VERSIONS),
    ("invalid device function", _VERSIONS),
    ("compiled with an unsupported toolchain", _VERSIONS),
    ("forward compatibility was attempted", "take cuda-compat from LD_LIBRARY_PATH: this GPU cannot use it"),
    ("unsupported display driver / cuda driver combination", "restart the machine: library and kernel module differ"),
    # cuBLAS
    ("cublas_status_arch_mismatch", _VERSIONS),
    ("cublas_status_not_supported", _VERSIONS),
    ("cublas_status_alloc_failed", _GPU_MEMORY),
    ("cublas_status_not_initialized", _GPU_MEMORY),
    ("not implemented for", _VERSIONS),
    # NCCL, as torch/csrc/distributed/c10d/NCCLUtils.hpp words its results. ncclUnhandledCudaError is the device's.
    ("ncclsystemerror", _SHARED),
    ("ncclinternalerror", _SHARED),
    ("ncclinvalidusage", _SHARED),
    ("ncclinvalidargument", _SHARED),
    ("nccl is not available", _VERSIONS),
    ("no space left on device", _SHARED),
    # gloo, between processes on the CPU
    ("makedevicefor", "unset GLOO_DEVICE_TRANSPORT and GLOO_SOCKET_IFNAME"),
    # the host's memory, pinned memory included
    ("can't allocate memory", _MEMORY),
    ("cannot allocate memory", _MEMORY),
    ("bad_alloc", _MEMORY),
    ("out of memory", _MEMORY),
)
"""What an error says where the GPU is not to blame, and what fixes it."""
_REBOOT: tuple[tuple[str, str], ...] = (
    ("system not yet initialized", "systemctl restart nvidia-fabricmanager, of the driver's own version"),
    ("unknown error", "load nvidia-uvm (`nvidia-modprobe -u`); start a container again; then reboot"),
    ("initialization error", "start a container again; then reboot"),
)
"""What CUDA says where it cannot start at all, although the driver shows the GPU: nobody's job can use it."""
_OF_A_PEER = ("ncclremoteerror", "connection closed by peer", "connection reset by peer")


class Unusable(Exception):
    """The device cannot be tested here, and that says nothing of the device."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


def explained(error: BaseException) -> dict[str, Any]:
    """Return the document of a program that ended with this error.

    `unusable` and `fix`: the device was not tested. `error`: it failed, with `action` where a reset is not what helps.
    """
    raised = {kind.__name__ for kind in type(error).__mro__}  # torch's own are known by name: it may not be here
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__).strip()
    match error:
        case Unusable():
            return {"unusable": text, "fix": error.fix}
        case _ if "OutOfMemoryError" in raised:
            return {"unusable": f"the GPU's memory is full: {text}", "fix": _GPU_MEMORY}
        case MemoryError():
            return {"unusable": f"the machine's memory is full: {text}", "fix": _MEMORY}
        case ImportError() | OSError():
            return {"unusable": f"a library cannot be used: {text}", "fix": _VERSIONS}
    whole = str(error).lower()
    for known, fix in _UNUSABLE:
        if known in whole:
            return {"unusable": text, "fix": fix}
    for known, fix in _REBOOT:
        if known in whole:
            return {"error": f"CUDA cannot start: {text}", "action": "reboot", "fix": fix}
    if raised & {"RuntimeError", "DeferredCudaCallError"}:  # what torch raises for a device that fails
        return {"error": text}
    return {"unusable": f"the test program failed: {type(error).__name__}: {text}", "fix": _REPORT}


def of_a_peer(document: dict[str, Any]) -> bool:
    """Return True where a program failed because another one of its group had."""
    return any(known in str(document).lower() for known in _OF_A_PEER)
