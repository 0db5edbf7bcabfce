"""All-reduce over all devices of a machine: one process starts one rank for each."""

from __future__ import annotations

import os
import socket
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from paddock.smoke.workers.device import Kind, open_device

_WARM_UP = 3


def run(device: Kind, ranks: int, size: int, repeats: int) -> dict[str, Any]:
    """Sum `size` bytes over `ranks` processes: NCCL between GPUs, gloo on the processor.

    Bus bandwidth is bytes/seconds x 2(n-1)/n, as nccl-tests count it (PERFORMANCE.md).
    """
    open_device(device)
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, (device, ranks, size, repeats, port, queue), nprocs=ranks)
    results = [queue.get() for _ in range(ranks)]
    seconds = max(statistics.median(result["seconds"]) for result in results)
    return {
        "ranks": ranks,
        "busbw_gbs": size / seconds * 2 * (ranks - 1) / ranks / 1e9,
        "wrong": sum(result["wrong"] for result in results),
    }


def _rank(rank: int, device: Kind, ranks: int, size: int, repeats: int, port: int, queue: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=ranks)
    opened = open_device(device)
    values = torch.empty(size // 4, dtype=torch.float32, device=opened.torch)
    seconds = []
    for number in range(_WARM_UP + repeats):
        values.fill_(rank + 1)
        opened.synchronize()
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(values)
        opened.synchronize()
        if number >= _WARM_UP:
            seconds.append(time.perf_counter() - start)
    wrong = int((values != ranks * (ranks + 1) / 2).sum())
    queue.put({"seconds": seconds, "wrong": wrong})
    dist.destroy_process_group()
