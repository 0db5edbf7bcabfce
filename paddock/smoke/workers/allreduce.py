"""All-reduce over all devices of a machine: one process starts one rank for each."""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from paddock.smoke.workers.device import Device, Kind, open_device
from paddock.smoke.workers.faults import explained, of_a_peer

_PART = 0.4
"""Part of the free memory that the message may take, and a comparison beside it."""
_BUDGET = 30.0
"""Seconds for all sums that are timed."""
_WARM_UP = 3


def run(device: Kind, ranks: int, size: int, repeats: int) -> dict[str, Any]:
    """Sum at most `size` bytes over `ranks` processes: NCCL between GPUs, gloo on the processor.

    Bus bandwidth is bytes/seconds x 2(n-1)/n, as nccl-tests count it (PERFORMANCE.md).
    """
    open_device(device)
    queue = mp.get_context("spawn").SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        mp.spawn(_rank, (device, ranks, size, repeats, port, queue), nprocs=ranks)
    except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
        return _failure(queue, error)
    results = [queue.get() for _ in range(ranks)]
    seconds, sent = max(result["seconds"] for result in results), results[0]["bytes"]
    return {
        "ranks": ranks,
        "bytes": sent,
        "busbw_gbs": sent / seconds * 2 * (ranks - 1) / ranks / 1e9,
        "wrong": sum(result["wrong"] for result in results),
    }


def _failure(queue: Any, error: Exception) -> dict[str, Any]:
    """Return the document of the rank that failed first: others then fail for want of it."""
    documents = []
    while not queue.empty():
        documents.append(queue.get())
    failed = [document for document in documents if "seconds" not in document]
    own = [document for document in failed if not of_a_peer(document)]
    return next(iter(own or failed), {"error": str(error).strip().splitlines()[0]})


def _rank(rank: int, device: Kind, ranks: int, size: int, repeats: int, port: int, queue: Any) -> None:
    try:
        queue.put(sum_up(rank, device, ranks, size, repeats, port))
    except Exception as error:
        queue.put(explained(error))
        raise


def sum_up(rank: int, device: Kind, ranks: int, size: int, repeats: int, port: int) -> dict[str, Any]:
    """Return the seconds of one all-reduce, its bytes, and the numbers that came out wrong, as this rank sees them."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": loopback}
    # Ranks of one machine meet over any interface, and one without a network has this alone.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=ranks)
    try:
        opened = open_device(device)
        words = _agreed(opened, min(size, int(opened.memory_bytes()[0] * _PART)), dist.ReduceOp.MIN) // 4
        values = torch.empty(words, dtype=torch.float32, device=opened.torch)
        wrong = _wrong(values, rank, ranks)
        values.zero_()
        _seconds(opened, values, _WARM_UP)
        once = _seconds(opened, values, 1)
        repeats = max(1, min(repeats, _agreed(opened, int(_BUDGET / once), dist.ReduceOp.MIN)))
        seconds = _seconds(opened, values, repeats)
        return {"seconds": seconds, "bytes": words * 4, "wrong": wrong + _wrong(values, rank, ranks)}
    finally:
        dist.destroy_process_group()


def _agreed(device: Device, value: int, operation: Any) -> int:
    """Return one value for all ranks."""
    shared = torch.tensor([value], dtype=torch.int64, device=device.torch)
    dist.all_reduce(shared, operation)
    return int(shared)


def _seconds(device: Device, values: torch.Tensor, repeats: int) -> float:
    """Return the seconds of one sum of many, one behind the other, so that no start counts."""
    device.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(values)
    device.synchronize()
    return (time.perf_counter() - start) / repeats


def _wrong(values: torch.Tensor, rank: int, ranks: int) -> int:
    values.fill_(rank + 1)
    dist.all_reduce(values)
    return int((values != ranks * (ranks + 1) / 2).sum())
