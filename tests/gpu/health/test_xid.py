"""Xids out of kernel logs, and the logs by every way they can be read."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddock.gpu.health.xid import events
from paddock.gpu.host import kernel_log
from paddock.gpu.host.kernel_log import Line
from tests.support.explore import examples

MMU = "NVRM: Xid (PCI:0000:04:00): 31, pid=3172, name=python3, Ch 00000008, intr 00000000. MMU Fault"
GSP = (
    "NVRM: Xid (PCI:0000:04:00): 119, pid=812, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0"
)
BOOT = 1_793_000_000


def kernel(folder: Path, *records: tuple[float, str]) -> Path:
    """Return a machine whose /dev/kmsg holds the records: seconds since boot, text."""
    (folder / "dev").mkdir()
    (folder / "proc").mkdir()
    (folder / "proc/stat").write_text(f"cpu  1 2 3\nbtime {BOOT}\nprocesses 7\n")
    lines = [
        f"4,{number},{int(seconds * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:04:00.0\n"
        for number, (seconds, text) in enumerate(records)
    ]
    (folder / "dev/kmsg").write_text("".join(lines))
    return folder


@pytest.mark.parametrize(("lines", "code", "where"), [
    ([MMU], 31, "0000:04:00.0"),
    (["NVRM: Xid (0000:03:00): 14, Channel 00000001"], 14, "0000:03:00.0"),
    (["NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x0)"], 149, "0018:01:00.0"),
    (["NVRM: Xid (PCI:0000:05:00 GPU-I:01): 94, pid=7, Contained: SM (0x1)."], 94, "0000:05:00.0"),
    (["NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."], 79,
     "0000:05:00.0"),
    (["NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."], 79, "0000:29:00.0"),
    (["NVRM: GPU 18:00.0: GPU has fallen off the bus."], 79, "0000:18:00.0"),
    (["NVRM: The NVIDIA GPU 0000:18:00.0", "NVRM: (PCI ID: 10de:2901) installed in this system has",
      "NVRM: fallen off the bus and is not responding to commands."], 79, "0000:18:00.0"),
    (["NVRM: Xid (PCI:00000000:AF:00): 48, DBE"], 48, "0000:af:00.0"),
    # no Xid: no number, another's words, and a process that calls itself one
    (["NVRM: Xid (invalid): some error"], None, None),
    (["NVRM: GPU 0000:04:00.0: RmInitAdapter failed! (0x62:0x40:2362)"], None, None),
    (["NVRM: fallen off the bus and is not responding to commands."], None, None),
    (["audit: comm=\"NVRM: Xid (PCI:0000:04:00): 79, \""], None, None),
    (["oom-kill: task=NVRM: Xid (PCI:0000:04:00): 95, x"], None, None),
])  # fmt: skip
def test_each_form_of_the_drivers_lines_is_parsed(lines: list[str], code: int | None, where: str | None) -> None:
    xids = events(Line(None, text) for text in lines)
    assert [(xid.code, xid.pci_address) for xid in xids] == ([(code, where)] if code else [])


def test_a_gpu_off_the_bus_is_reported_once() -> None:
    lines = ["NVRM: Xid (PCI:0000:29:00): 79, GPU has fallen off the bus.",
             "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.",
             "NVRM: GPU 0000:29:00.0: GPU serial number is 165."]  # fmt: skip
    assert [xid.code for xid in events(Line(None, text) for text in lines)] == [79]


@pytest.mark.parametrize(("text", "requested"), [
    ("recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "gpu-reset"),
    ("recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", "none"),
    ("recovery action changed from 0x0 (None) to 0x7f (?)", None),
    ("recovery action", None),
])  # fmt: skip
def test_xid_154_carries_the_requested_action(text: str, requested: str | None) -> None:
    (xids,) = events([Line(None, f"NVRM: Xid (PCI:0000:04:00): 154, GPU {text}")])
    assert xids.recovery_action == requested


@example("NVRM: Xid (.): 0,")
@example("NVRM: Xid (a::b): 0,")
@examples(40, 500)
@given(st.text(max_size=200) | st.from_regex(r"NVRM: Xid \(.{0,20}\).{0,9}: [0-9]{1,9},.{0,20}", fullmatch=True))
def test_any_line_of_a_log_is_accepted(text: str) -> None:
    for xids in events([Line(None, text)]):
        assert xids.code >= 0
        assert xids.pci_address


# --- the log itself


def test_kmsg_gives_every_record_with_the_time_it_was_written(tmp_path: Path) -> None:
    log = kernel_log.read(root=kernel(tmp_path, (12.5, "nvidia: loading"), (3600, MMU), (3601, GSP)))
    assert (log.source, log.reason) == ("kmsg", None)
    assert [(xid.code, xid.at) for xid in events(log.lines)] == [
        (31, datetime.fromtimestamp(BOOT + 3600, UTC)),
        (119, datetime.fromtimestamp(BOOT + 3601, UTC)),
    ]


def test_older_events_are_skipped(tmp_path: Path) -> None:
    now = datetime.now(UTC).timestamp() - BOOT
    root = kernel(tmp_path, (now - 7300, MMU), (now - 10, GSP))
    assert [xid.code for xid in events(kernel_log.read(since=timedelta(hours=2), root=root).lines)] == [119]
    assert len(events(kernel_log.read(root=root).lines)) == 2


def test_a_growing_log_is_read_to_its_current_end(tmp_path: Path) -> None:
    """/dev/kmsg has no end: a read beyond it waits, or says EAGAIN where it may not. So does this pipe."""
    (tmp_path / "dev").mkdir()
    pipe = tmp_path / "dev/kmsg"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    try:
        os.write(writer, f"4,1,7000000,-;{GSP}\n".encode())
        xids: list[kernel_log.KernelLog] = []
        reading = threading.Thread(target=lambda: xids.append(kernel_log.read(root=tmp_path)), daemon=True)
        reading.start()
        reading.join(20)
        assert [line.text for line in xids[0].lines] == [GSP]
        assert xids[0].lines[0].at is None
    finally:
        os.close(writer)


JOURNAL = f"""-- Boot 5c1d --
2026-11-20T10:00:00+0100 ip-10-0-3-7 kernel: {MMU}
2026-11-20T12:00:01+0100 ip-10-0-3-7 kernel: {GSP}
"""
DMESG = f"2026-11-20T10:00:00,123456+01:00 {MMU}\n2026-11-20T12:00:01,123456+01:00 {GSP}\n"


@pytest.mark.parametrize(("program", "output"), [("journalctl", JOURNAL), ("dmesg", DMESG)])
def test_without_kmsg_journalctl_and_dmesg_are_run(tmp_path: Path, program: str, output: str) -> None:
    def run(command: Sequence[str]) -> str | None:
        return output if command[0] == program else None

    log = kernel_log.read(root=tmp_path, run=run)
    assert log.source == program
    xids = events(log.lines)
    assert [xid.code for xid in xids] == [31, 119]
    assert xids[0].at is not None
    assert xids[0].at.astimezone(UTC).replace(microsecond=0) == datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_journalctl_reads_only_the_requested_time(tmp_path: Path) -> None:
    commands: list[Sequence[str]] = []
    kernel_log.read(since=timedelta(hours=2), root=tmp_path, run=lambda command: commands.append(command))
    assert commands[0][:2] == ["journalctl", "-k"]
    assert "--since" in commands[0]


def test_a_log_that_nobody_may_read_says_who_may(tmp_path: Path) -> None:
    log = kernel_log.read(root=tmp_path, run=lambda command: None)
    assert log.lines == ()
    assert log.source is None
    assert "/dev/kmsg: No such file or directory" in (log.reason or "")
    assert "systemd-journal" in (log.reason or "")
