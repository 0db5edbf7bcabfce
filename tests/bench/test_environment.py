"""The environment of a run: what a container may use, and which image and machine it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.bench.measurement import environment
from paddock.gpu.errors import GpuError
from paddock.gpu.host import cgroup, imds
from paddock.gpu.inventory import inventory
from tests.support.nvml import Driver, installed

GIB = 1 << 30


def written(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V2 = {
    "sys/fs/cgroup/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
    "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
    "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
}
V1 = {
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{5 * GIB}\n",
    "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {2 * GIB}\n",
}
NONE = {
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/memory.current": "1\n",
}
OLD_NONE = {
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
}


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (V2, cgroup.Limits(8 * GIB, 5 * GIB, 1.5)),
        (V1, cgroup.Limits(8 * GIB, 5 * GIB, 1.5)),
        (NONE, cgroup.Limits()),
        (OLD_NONE, cgroup.Limits()),
        ({}, cgroup.Limits()),
    ],
    ids=["version 2", "version 1", "no limit", "no limit of version 1", "no cgroup"],
)
def test_limits_of_a_container_are_read(files: Mapping[str, str], limits: cgroup.Limits, tmp_path: Path) -> None:
    assert cgroup.limits(written(tmp_path, files)) == limits


def test_a_pod_has_the_memory_and_processors_of_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    root = written(tmp_path, {**V2, "proc/meminfo": f"MemAvailable: {500 * GIB // 1024} kB\n"})
    assert environment.available_bytes(root) == 5 * GIB
    assert environment.memory_bytes(root) == 8 * GIB
    assert (environment.usable_cpus(root), environment.quota_threads(root)) == (2, 1)
    free = written(tmp_path / "free", {"proc/meminfo": "MemAvailable: 1024 kB\n"})
    assert environment.available_bytes(free) == 1024 * 1024
    assert environment.memory_bytes(free) is not None
    assert (environment.usable_cpus(free), environment.quota_threads(free)) == (64, None)
    with installed(Driver([])):
        read = environment.environment(inventory(), {}, root)
    assert (read["vcpus"], read["cpu_quota"], read["memory_bytes"]) == (2, 1.5, 8 * GIB)
    assert math.isfinite(read["cpu_quota"])


def test_image_and_machine_image_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"instance-type": "g5.xlarge", "ami-id": "ami-0123456789abcdef0"}

    def answer(host: str, seconds: float, method: str, path: str, headers: Mapping[str, str]) -> str:
        return "token" if method == "PUT" else answers[path.rpartition("/")[2]]

    monkeypatch.setattr(imds, "_answer", answer)
    written(tmp_path, {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"})
    with installed(Driver([])):
        here = inventory()
        read = environment.environment(here, {"PADDOCK_IMAGE": "runner-gpu:12.8-abc"}, tmp_path)
        assert (read["instance"], read["ami"], read["image"]) == (*answers.values(), "runner-gpu:12.8-abc")
        said = environment.environment(here, {"PADDOCK_AMI": "ami-1", "PADDOCK_INSTANCE_TYPE": "p5.48xlarge"}, tmp_path)
        assert (said["instance"], said["ami"]) == ("p5.48xlarge", "ami-1")
        elsewhere = environment.environment(here, {}, tmp_path / "no EC2")
        assert (elsewhere["instance"], elsewhere["ami"], elsewhere["image"]) == (None, None, None)
    answers["ami-id"] = "<html>"
    with pytest.raises(GpuError, match="is no ami id"):
        imds.machine_image()
