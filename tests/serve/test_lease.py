"""Lease of a replica's GPU, on machines with GPUs that a list describes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.gpu.leases.manager import Leases
from paddock.serve.errors import ServeError
from paddock.serve.replica.lease import DeviceLease, lease_devices
from tests.conftest import ROOT
from tests.support.boxes import h100s

FIRST, SECOND = (str(gpu.uuid) for gpu in h100s(2).gpus)


def take(folder: Path, *uuids: str, gpus: int = 2) -> DeviceLease | None:
    leases = Leases(folder, environ={})
    return lease_devices(uuids, environ={}, leases=leases, read_inventory=lambda: h100s(gpus), wait=0)


def leased(folder: Path) -> list[str]:
    return [device.uuid for lease in Leases(folder, environ={}).held() for device in lease.devices]


def test_a_replica_holds_its_own_gpu_until_it_ends(tmp_path: Path) -> None:
    lease = take(tmp_path, SECOND)
    assert lease is not None
    assert leased(tmp_path) == [SECOND]
    with pytest.raises(ServeError, match=r"no lease of the GPU.*leased to"):
        take(tmp_path, SECOND)
    lease.release()
    lease.release()
    assert leased(tmp_path) == []


def test_several_gpus_are_one_lease(tmp_path: Path) -> None:
    assert take(tmp_path) is None
    take(tmp_path, FIRST, SECOND)
    assert leased(tmp_path) == [FIRST, SECOND]


def test_a_killed_replica_leaves_no_lease(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.serve.test_lease import take, leased\n"
        "import json; folder = pathlib.Path(sys.argv[2]); take(folder, sys.argv[3])\n"
        "print(json.dumps(leased(folder)), flush=True); os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), str(tmp_path), SECOND], capture_output=True, text=True, check=False
    )
    assert json.loads(ended.stdout) == [SECOND]
    assert leased(tmp_path) == []
