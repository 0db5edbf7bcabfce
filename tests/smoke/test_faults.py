"""What an error of torch says: a GPU that fails, or a machine on which it cannot be tested."""

from __future__ import annotations

import pytest

from tests.support.packages import need

need("torch")

import torch

from paddock.smoke.workers.faults import Unusable, explained, of_a_peer

_ASYNC = "\nCUDA kernel errors might be asynchronously reported at some other API call"
_NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {}, NCCL version 2.29.7\n{}"


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libcudart.so.13: cannot open shared object file"),
        OSError("libtorch_cuda.so: file too short"),
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update"),
        RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
        RuntimeError("No CUDA GPUs are available"),
        torch.AcceleratorError(f"CUDA error: no kernel image is available for execution on the device{_ASYNC}"),
        torch.AcceleratorError(f"CUDA error: the provided PTX was compiled with an unsupported toolchain.{_ASYNC}"),
        RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB. GPU 0 has a total capacity of"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"),
        torch.AcceleratorError(f"CUDA error: out of memory{_ASYNC}"),  # pinned memory
        MemoryError(),
        RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
        torch.distributed.DistBackendError(
            _NCCL.format(
                "unhandled system error",
                "ncclSystemError: System call\nLast error:\nError while creating shared memory",
            )
        ),
        torch.distributed.DistBackendError(
            _NCCL.format("internal error", "ncclInternalError: Internal check failed.\nBootstrap : no socket interface")
        ),
        RuntimeError("Distributed package doesn't have NCCL built in: NCCL is not available"),
        TypeError("run() got an unexpected keyword argument"),
        Unusable("torch sees no Metal GPU", "another torch"),
    ],
    ids=str,
)
def test_what_the_machine_lacks_is_no_fault_of_the_gpu(error: Exception) -> None:
    document = explained(error)
    assert document["unusable"]
    assert document["fix"]
    assert "error" not in document


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered{_ASYNC}"),
        torch.AcceleratorError(f"CUDA error: uncorrectable ECC error encountered{_ASYNC}"),
        torch.AcceleratorError(f"CUDA error: unspecified launch failure{_ASYNC}"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"),
        torch.distributed.DistBackendError(
            _NCCL.format("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed.")
        ),
        torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization with error: device-side assert"),
    ],
    ids=str,
)
def test_what_the_gpu_does_wrong_fails_it(error: Exception) -> None:
    document = explained(error)
    assert document["error"]
    assert "action" not in document
    assert "\n" not in document["error"]


@pytest.mark.parametrize("text", [
    "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
])  # fmt: skip
def test_cuda_that_cannot_start_asks_for_a_reboot(text: str) -> None:
    document = explained(RuntimeError(text))
    assert (document["action"], bool(document["fix"])) == ("reboot", True)


def test_a_rank_that_lost_another_is_distinguished() -> None:
    assert of_a_peer({"error": "ncclRemoteError: A call failed possibly due to a network error"})
    assert not of_a_peer({"error": "CUDA error: uncorrectable ECC error encountered"})
