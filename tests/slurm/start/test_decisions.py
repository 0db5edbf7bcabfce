"""Decisions of a start: what changed, whose drain it is, what a log means, and what the container may use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.gpu.host.cgroup import Limits
from paddock.gpu.model import Driver
from paddock.gpu.render.rendered import headed
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.start.checks import check_machine, check_state
from paddock.slurm.start.comparison import differences
from paddock.slurm.start.drains import parse
from paddock.slurm.start.hardware import hardware
from paddock.slurm.start.layout import Layout, users
from paddock.slurm.start.node import job_processes
from paddock.slurm.start.request import StartRequest, checked
from paddock.slurm.start.supervisor import explained
from tests.support.boxes import box, gpu, h100s
from tests.support.gpu_machines import NO_GPU

LINE = "NodeName=vm CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"


def test_differences_are_said_in_words() -> None:
    t4 = box([gpu(0, "t4")])
    driver = Driver("580.95.05", "13.0")
    assert differences(h100s(2), h100s(2)) == ()
    assert differences(h100s(4), h100s(2)) == ("2x NVIDIA H100 80GB HBM3 here, 2 fewer than when it was configured",)
    assert differences(h100s(2), h100s(4)) == ("4x NVIDIA H100 80GB HBM3 here, 2 more than when it was configured",)
    assert differences(h100s(2), t4) == (
        "no NVIDIA H100 80GB HBM3 here, and 2 when it was configured",
        "1x Tesla T4 here, another model than when it was configured",
    )
    assert differences(h100s(1), NO_GPU) == (
        f"no GPUs here, and 1x NVIDIA H100 80GB HBM3 when it was configured: {NO_GPU.reason}",
    )
    assert differences(NO_GPU, t4) == ("1x Tesla T4 here, and no GPUs when it was configured",)
    newer = replace(driver, version="590.44.01")
    assert differences(replace(t4, driver=driver), replace(t4, driver=newer)) == (
        "driver 590.44.01 here, and 580.95.05 when it was configured",
    )


@pytest.mark.parametrize("reason", [
    "gres/gpu count reported lower than configured (0 < 4)",
    "gres/shard count reported lower than configured (0 < 8)",
    "Low RealMemory (reported:15000 < 100.00% of configured:16000)",
    "Low socket*core*thread count, Low CPUs",
    "Not responding",
    "Node unexpectedly rebooted",
    "Kill task failed",
])  # fmt: skip
def test_a_drain_of_slurm_is_taken_back(reason: str) -> None:
    state = parse(f"NodeName=a Arch=x State=IDLE+DRAIN ThreadsPerCore=1 Reason={reason} [slurm@2026-11-23T20:00:00]")
    assert (state.reason, state.by) == (reason, "slurm")
    assert state.drained_by_slurm


@pytest.mark.parametrize("reason", ["new fans on Monday", "see why Low RealMemory", "maintenance [ticket 7]"])
def test_a_drain_of_a_person_stays(reason: str) -> None:
    state = parse(f"NodeName=a State=IDLE+DRAIN Reason={reason} [root@2026-11-23T20:00:00]")
    assert state.reason == reason
    assert state.drained
    assert not state.drained_by_slurm


def test_node_states_are_distinguished() -> None:
    assert not parse("NodeName=a State=IDLE ThreadsPerCore=1").out
    assert parse("NodeName=a State=DOWN*").down
    assert not parse("NodeName=a State=IDLE* ThreadsPerCore=1").answers
    invalid = parse("NodeName=a State=IDLE+DRAIN+INVALID_REG Reason=gres/gpu count reported lower [slurm@x]")
    assert invalid.invalid
    assert not invalid.drained_by_slurm, "Slurm refuses to resume it"
    assert not parse("scontrol: nothing").answers


@pytest.mark.parametrize(("line", "meaning"), [
    ("slurmctld: error: Munge decode failed: Invalid credential", "munge keys differ"),
    ("slurmd: error: Munge decode failed: Rewound credential", "clocks of two machines"),
    ("slurmctld: error: Error binding slurm stream socket: Address already in use", "port is taken"),
    ("slurmd: fatal: can't stat gres.conf file /dev/nvidia7: No such file or directory", "device file is missing"),
    ("slurmd: We were configured with nvml functionality, but that lib wasn't found on the system.", "no plugin"),
    ("slurmctld: fatal: CLUSTER NAME MISMATCH.", "cluster of another name"),
    ("slurmctld: error: write: No space left on device", "disk of a volume is full"),
    ("slurmd: fatal: Gres gpu has duplicate records in gres.conf", "same GPUs twice"),
])  # fmt: skip
def test_a_line_of_a_log_is_explained_with_a_fix(line: str, meaning: str) -> None:
    assert meaning in explained(line)
    assert "fix: " in explained(line)


def test_ordinary_lines_are_not_explained() -> None:
    assert explained("munged: Info: Unauthorized credential for client UID=64030 GID=64030") == ""
    assert explained("slurmd: slurmd version 22.05.8 started") == ""


def test_the_hardware_is_lowered_to_the_limits_of_the_container() -> None:
    assert hardware(LINE, Limits()).line == LINE.partition(" ")[2]
    assert hardware(LINE, Limits(memory=4096 << 20)).memory_mib == 4096
    assert hardware(LINE, Limits(memory=10**6 << 20)).limits == ()
    limited = hardware(LINE, Limits(cpus=2.5), usable_cpus=4)
    assert limited.line == "CPUs=2 RealMemory=16000"
    assert limited.limits == ("2 of 8 CPUs (limit of the container)",)
    assert hardware(LINE, Limits(cpus=0.5)).cpus == 1
    with pytest.raises(SlurmError, match="printed no node: slurmd: fatal"):
        hardware("slurmd: fatal: no", Limits())


@pytest.mark.parametrize(("flags", "message"), [
    ({"role": "node"}, "--role node has no controller"),
    ({"controller": "head"}, "--controller with --role all"),
    ({"role": "node", "controller": "a b"}, "--controller 'a b'"),
    ({"name": "a.b"}, "--name 'a.b'"),
    ({"cluster": ""}, "--cluster ''"),
    ({"controller_port": 70_000}, "--controller-port 70000"),
    ({"daemon_port": 6817}, "are both 6817"),
    ({"shards": 1}, "--shards 1"),
])  # fmt: skip
def test_a_flag_that_makes_no_sense_is_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(SlurmInputError, match=message) as raised:
        checked(StartRequest(**{"name": "box", **flags}))  # type: ignore[arg-type]  # values as the command line has them
    assert "    expected: " in str(raised.value)


def test_a_machine_keeps_its_own_files_of_slurm(tmp_path: Path) -> None:
    layout = Layout(etc=tmp_path / "etc/slurm", state=tmp_path / "var/spool/slurmctld")
    with pytest.raises(SlurmInputError, match="this is not a container"):
        check_machine(layout, tmp_path, {})
    layout.etc.mkdir(parents=True)
    layout.slurm_conf.write_text("ClusterName=campus\n")
    with pytest.raises(SlurmInputError, match="this is not a container"):
        check_machine(layout, tmp_path, {})
    check_machine(layout, tmp_path, {"PADDOCK_GPU_TYPE": "none"})
    layout.slurm_conf.write_text(headed("slurm.conf", "ClusterName=paddock\n").text)
    check_machine(layout, tmp_path, {})
    check_state(layout, StartRequest(name="box"))
    assert not layout.state.exists(), "a check creates nothing"


def test_only_jobs_of_this_node_end_with_it(tmp_path: Path) -> None:
    def process(pid: int, **environ: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (python) S 1 {pid} {pid} " + "0 " * 48)
        (folder / "environ").write_bytes(b"\0".join(f"{key}={value}".encode() for key, value in environ.items()))

    process(11, SLURM_JOB_ID="1", SLURM_CLUSTER_NAME="paddock", SLURMD_NODENAME="box")
    process(12, SLURM_JOB_ID="1", SLURM_CLUSTER_NAME="campus", SLURMD_NODENAME="box")
    process(13, SLURM_JOB_ID="1", SLURM_CLUSTER_NAME="paddock", SLURMD_NODENAME="other")
    process(14, SLURM_CLUSTER_NAME="paddock", SLURMD_NODENAME="box")
    assert job_processes("paddock", "box", tmp_path) == [11]


def test_a_user_without_a_name_is_refused() -> None:
    with pytest.raises(SlurmInputError, match="the user 4123456 has no name"):
        users(4123456)
