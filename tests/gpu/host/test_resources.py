"""What a container may use of its machine, and a system that does not say it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.gpu.host import cgroup, resources

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
    assert resources.available_bytes(root) == 5 * GIB
    assert resources.memory_bytes(root) == 8 * GIB
    assert (resources.usable_cpus(root), resources.quota_threads(root)) == (2, 1)
    free = written(tmp_path / "free", {"proc/meminfo": "MemAvailable: 1024 kB\n"})
    assert resources.available_bytes(free) == 1024 * 1024
    assert resources.memory_bytes(free) is not None
    assert (resources.usable_cpus(free), resources.quota_threads(free)) == (64, None)


def test_what_a_system_does_not_say_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert (resources.memory_bytes(tmp_path), resources.available_bytes(tmp_path)) == (None, None)
    assert (resources.usable_cpus(tmp_path) > 0, resources.quota_threads(tmp_path)) == (True, None)
    assert resources.processor(tmp_path) in (platform.processor(), platform.machine())
