"""Reports of test jobs become verdicts. A made-up srun stands in for Slurm's; tests/e2e runs the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.gpu import serialization
from paddock.slurm.programs import nodes
from paddock.slurm.programs.nodes import Node
from paddock.slurm.programs.place import Place
from paddock.slurm.submit.gpu_jobs import Check, check
from paddock.slurm.submit.seen import parse
from tests.support.boxes import h100s

GOOD = """job=7
node=a
gpus=2
cuda=2
rocr=
device=/dev/null
device=/dev/nvidia2
gres=Type=h100 Count=4 Index=0 ID=7696487 File=/dev/nvidia[0-3] (null)
== end
"""


def node(gpus: int = 2, cpus: int = 8) -> Node:
    (parsed,) = nodes.parse(f"NodeName=a CPUTot={cpus} Gres=gpu:h100:{gpus} RealMemory=100 State=IDLE ThreadsPerCore=1")
    return parsed


def results(folder: Path, srun: str, monkeypatch: pytest.MonkeyPatch, of: Node | None = None) -> list[Check]:
    """Return what the test says of jobs that run this script in place of srun; $1 is its number, from 0."""
    number = f'n=0; until mkdir {folder}/ran.$n; do n=$((n+1)); done 2>/dev/null; set -- "$n"'
    for name, text in (("srun", f"{number}\n{srun}"), ("scancel", f"echo $1 >> {folder}/cancelled")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return check(Place("here", "/"), [of or node()], 5)


REPORT = 'printf "job=$1\\nnode=a\\ngpus=%s\\ncuda=%s\\n== end\\n" "$gpu" "$gpu"; cat >/dev/null'


def test_a_report_names_the_device_file_of_the_number() -> None:
    seen = parse(GOOD)
    assert (seen.job, seen.numbers, seen.visible, seen.files, seen.absent) == (
        "7",
        ("2",),
        ("2",),
        ("/dev/nvidia2",),
        (),
    )
    assert parse(GOOD.replace("device=/dev/nvidia2\n", "")).absent == ("/dev/nvidia2",)
    assert parse("").visible == ()


def test_two_jobs_on_one_gpu_at_the_same_time_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = results(tmp_path, f"[ $1 = 0 ] || gpu=1\n{REPORT}", monkeypatch)
    assert [result.passed for result in checks].count(False) == 1
    (failed,) = (result for result in checks if not result.passed)
    assert "has GPU 1 at the same time" in failed.problems[0]
    assert (tmp_path / "cancelled").read_text().startswith("--name=paddock-test-")


def test_a_job_without_gpu_that_the_driver_shows_gpus_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inventory").write_text(serialization.dumps(h100s(2)))
    listed = (
        f'printf "job=1\\n"; printf "cuda=%s\\n" "$gpu"; echo "== inventory"; cat {tmp_path}/inventory; echo "== end"'
    )
    alone, *_ = results(tmp_path, f"{listed}; cat >/dev/null", monkeypatch)
    assert alone.passed is False
    assert "a job without GPU sees GPU-00000000-aaaa,GPU-00000001-aaaa" in alone.problems
    (tmp_path / "hidden").mkdir()
    alone, *_ = results(tmp_path / "hidden", f"gpu=-1\n{listed}; cat >/dev/null", monkeypatch)
    assert alone.passed


def test_a_node_with_fewer_cores_than_gpus_gives_several_to_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once: jobs one after another would be given the same GPUs again."""
    script = f"[ $1 = 0 ] || gpu=$(( 3 * ($1 - 1) )),$(( 3 * ($1 - 1) + 1 )),$(( 3 * ($1 - 1) + 2 ))\n{REPORT}"
    checks = results(tmp_path, script, monkeypatch, node(gpus=6, cpus=2))
    assert [(result.gpu, result.count, result.passed) for result in checks] == [
        ("", 0, True), ("h100", 3, True), ("h100", 3, True),
    ]  # fmt: skip
    assert {number for result in checks if result.seen for number in result.seen.numbers} == set("012345")


@pytest.mark.parametrize(("srun", "passed", "problem"), [
    (REPORT, False, "neither CUDA_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES is set"),
    (f"[ $1 = 0 ] || gpu=0,1\n{REPORT}", False, "it sees 2 GPUs in place of 1: 0,1"),
    (f"gpu=0\n{REPORT}", False, "a job without GPU sees 0"),
    ('echo "srun: error: Invalid generic resource (gres) specification" >&2; exit 1', False, "Invalid generic"),
    ('echo "srun: error: Unable to allocate resources: Requested nodes are busy" >&2; exit 1', None, "others use"),
])  # fmt: skip
def test_what_is_wrong_with_a_job_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, srun: str, passed: bool | None, problem: str
) -> None:
    checks = results(tmp_path, srun, monkeypatch)
    assert any(result.passed is passed and problem in " ".join(result.problems) for result in checks), checks
