"""Lease of a replica's GPU, on machines with GPUs that a list describes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.gpu.leases.manager import Leases
from paddock.serve.engine.lease import DeviceLease, lease_device
from paddock.serve.errors import ServeError
from tests.conftest import ROOT
from tests.support.boxes import h100s

SECOND = h100s(2).gpus[1].uuid


def take(folder: Path, device: str = "cuda", visible: str = "1", gpus: int = 2) -> DeviceLease | None:
    environ = {"CUDA_VISIBLE_DEVICES": visible}
    leases = Leases(folder, environ=environ)
    return lease_device(device, environ=environ, leases=leases, read_inventory=lambda: h100s(gpus), wait=0)


def leased(folder: Path) -> list[str]:
    return [device.uuid for lease in Leases(folder, environ={}).held() for device in lease.devices]


def test_a_replica_holds_its_own_gpu_until_it_ends(tmp_path: Path) -> None:
    lease = take(tmp_path)
    assert lease is not None
    assert leased(tmp_path) == [SECOND]
    with pytest.raises(ServeError, match=r"no lease of the GPU.*leased to"):
        take(tmp_path)
    lease.release()
    lease.release()
    assert leased(tmp_path) == []


def test_a_processor_is_not_leased(tmp_path: Path) -> None:
    assert take(tmp_path, "cpu") is None
    assert take(tmp_path, "mps") is None


def test_a_gpu_is_named_by_uuid_too(tmp_path: Path) -> None:
    assert SECOND is not None
    take(tmp_path, visible=SECOND)
    assert leased(tmp_path) == [SECOND]


def test_a_gpu_that_the_driver_does_not_show_is_stated(tmp_path: Path) -> None:
    there = "GPU-00000000-aaaa, GPU-00000001-aaaa"
    with pytest.raises(ServeError, match=f"CUDA_VISIBLE_DEVICES=7 shows 0 of these devices: {there}"):
        take(tmp_path, visible="7")


def test_a_killed_replica_leaves_no_lease(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.serve.test_lease import take, leased\n"
        "import json; folder = pathlib.Path(sys.argv[2]); take(folder)\n"
        "print(json.dumps(leased(folder)), flush=True); os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert json.loads(ended.stdout) == [SECOND]
    assert leased(tmp_path) == []
