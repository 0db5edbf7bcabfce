"""The job itself: what its log says of GPU and driver, once it has ended."""

from __future__ import annotations

import re

from paddock.errors import one_line
from paddock.operate.snapshot.model import Snapshot, failed
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread
from paddock.operate.why.subject import Subject

# What CUDA, PyTorch and nvidia-smi write -> runbook. The first that matches counts: causes before what follows of them.
LOG_FAILURES: tuple[tuple[str, str], ...] = (
    (r"driver/library version mismatch", "job-driver-mismatch"),
    (r"Failed to initialize NVML: Unknown Error", "job-lost-gpus"),
    (
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        r"|cudaErrorInsufficientDriver|provided PTX was compiled with an unsupported toolchain",
        "job-driver-too-old",
    ),
    (r"no kernel image is available for execution", "job-other-architecture"),
    (
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "job-gpu-memory",
    ),
    (
        r"No CUDA GPUs are available|no CUDA-capable device is detected|Found no NVIDIA driver|CUDA_ERROR_NO_DEVICE"
        r"|nvidia-smi: (command )?not found|Failed to initialize NVML",
        "job-sees-no-gpu",
    ),
)
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ")
_SCRIPT = re.compile(r"\x1b\[36;1m|##\[(group|command)\]")
"""The runner shows the commands of a step, which may look for the very words, in cyan or as a group."""
_LONGEST = 300


def job(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge why a job that has ended failed, where GPU or driver are the reason."""
    item = subject.job
    if item is None or item.get("status") != "completed":
        return unknown("the job has not ended")
    on = str(item.get("runner_name") or "a runner that GitHub does not name")
    if not failed(item):
        return ok(f"it ended with {item.get('conclusion')} on {on}", ends=True)
    if not snapshot.job_log.known:
        return unread(snapshot.job_log, "the job's log")
    lines = _lines(snapshot)
    for pattern, runbook in LOG_FAILURES:
        if line := next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), ""):
            return broken(runbook, f"its log: {line}", runner=subject.runner_key, name=on)
    return ok(f"it ended with {item.get('conclusion')} on {on}; its log names no fault of GPU or driver", ends=True)


def _lines(snapshot: Snapshot) -> list[str]:
    """Return what the steps printed, the last line first, where a failure is; without times."""
    text = "\n".join(str(item.get("text") or "") for item in snapshot.job_log)
    printed = [_TIME.sub("", line) for line in text.splitlines() if not _SCRIPT.search(line)]
    return [one_line(line)[:_LONGEST] for line in reversed(printed)]
