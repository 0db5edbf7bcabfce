"""Ranks that are processes of torch: one for each GPU."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from paddock.smoke.workers.device import Array, ArrayDevice, Kind, TorchDevice
from paddock.smoke.workers.faults import explained, of_a_peer

Work = Callable[[ArrayDevice, Any, int, int], dict[str, Any]]
"""What a rank does: on its device, as this rank, with at most so many bytes, so many times."""


class Process:
    """A rank in torch's group of processes."""

    def __init__(self, device: ArrayDevice) -> None:
        self.number, self.ranks = dist.get_rank(), dist.get_world_size()
        self._device = device

    def meet(self) -> None:
        dist.barrier()

    def least(self, value: int) -> int:
        shared = torch.tensor([value], dtype=torch.int64, **self._device.place)
        dist.all_reduce(shared, dist.ReduceOp.MIN)
        return int(shared)

    def sum(self, values: Array) -> None:
        dist.all_reduce(values)


def in_processes(work: Work, device: Kind, ranks: int, size: int, repeats: int) -> list[dict[str, Any]]:
    """Return the result of each rank, or the one document that says why there is none."""
    queue = mp.get_context("spawn").SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        mp.spawn(_rank, (work, device, ranks, size, repeats, port, queue), nprocs=ranks)
    except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
        return [_failure(queue, error)]
    return [queue.get() for _ in range(ranks)]


def _failure(queue: Any, error: Exception) -> dict[str, Any]:
    """Return the document of the rank that failed first: others then fail for want of it."""
    documents = []
    while not queue.empty():
        documents.append(queue.get())
    failed = [document for document in documents if "seconds" not in document]
    own = [document for document in failed if not of_a_peer(document)]
    return next(iter(own or failed), {"error": str(error).strip().splitlines()[0]})


def _rank(rank: int, work: Work, device: Kind, ranks: int, size: int, repeats: int, port: int, queue: Any) -> None:
    try:
        queue.put(joined(rank, work, device, ranks, size, repeats, port))
    except Exception as error:
        queue.put(explained(error))
        raise


def joined(rank: int, work: Work, device: Kind, ranks: int, size: int, repeats: int, port: int) -> dict[str, Any]:
    """Join the group, by NCCL between GPUs, and return the result of this rank."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": loopback}
    # Ranks of one machine meet over any interface, and one without a network has this alone.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=ranks)
    try:
        opened = TorchDevice(device)
        return work(opened, Process(opened), size, repeats)
    finally:
        dist.destroy_process_group()
