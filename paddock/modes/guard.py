"""Process that caps a GPU and gives the cap back when its parent ends, also by SIGKILL.

It writes one line of JSON when the cap is set or refused, then waits for the end of its standard input. What it changed
is in a file meanwhile: where this process is killed too, the next one gives that back, with or without a cap.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from paddock import files

_POLL = 1.0
"""Seconds after which the parent is looked for: a child of its own may hold the pipe open."""


@dataclass(frozen=True, slots=True)
class Before:
    """Settings to give back: the power limit in milliwatts, 0 where it was not changed, and the lock of the clock."""

    before_mw: int = 0
    clock_locked: bool = False


def main(uuid: str, power_mw: str, clock_mhz: str, folder: str) -> int:
    """Set the caps that are not 0, wait, and restore. `folder` holds what there was before.

    Without any cap it gives back what a killed guard left.
    """
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    record = record_of(Path(folder), uuid)
    try:
        from paddock.gpu.drivers.nvml_calls import load

        nvml = load()
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        with files.locked(record.with_suffix(".lock")):
            before = recorded(record)
            if int(power_mw) and not before.before_mw:
                before = replace(before, before_mw=int(nvml.nvmlDeviceGetPowerManagementLimit(device)))
            before = replace(before, clock_locked=before.clock_locked or int(clock_mhz) > 0)
            files.write(record, json.dumps(asdict(before)))
            try:
                _set(nvml, device, int(power_mw), int(clock_mhz))
                _say({"before_mw": before.before_mw})
                _wait(parent)
            finally:
                _restore(nvml, device, before)
                record.unlink(missing_ok=True)
    except BlockingIOError:
        _say({"error": "another benchmark caps this GPU"})
        return 1
    except Exception as error:
        _say({"error": " ".join(str(error).split()) or type(error).__name__})
        return 1
    return 0


def record_of(folder: Path, uuid: str) -> Path:
    return folder / f"cap-{uuid}.json"


def recorded(record: Path) -> Before:
    """Return what a killed guard had to give back; nothing where there is no record that can be read."""
    try:
        document = json.loads(record.read_text())
        return Before(int(document["before_mw"]), bool(document.get("clock_locked", False)))
    except (OSError, ValueError, KeyError, TypeError):
        return Before()


def _set(nvml: Any, device: Any, power_mw: int, clock_mhz: int) -> None:
    if power_mw:
        low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(device)
        if not low <= power_mw <= high:
            raise ValueError(f"{power_mw / 1000:g} W is outside what this GPU takes: {low / 1000:g} to {high / 1000:g}")
        nvml.nvmlDeviceSetPowerManagementLimit(device, power_mw)
    if clock_mhz:
        nvml.nvmlDeviceSetGpuLockedClocks(device, 0, clock_mhz)


def _restore(nvml: Any, device: Any, before: Before) -> None:
    try:
        if before.before_mw and nvml.nvmlDeviceGetPowerManagementLimit(device) != before.before_mw:
            nvml.nvmlDeviceSetPowerManagementLimit(device, before.before_mw)
    finally:
        if before.clock_locked:
            nvml.nvmlDeviceResetGpuLockedClocks(device)


def _wait(parent: int) -> None:
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], _POLL)[0] and not os.read(0, 1):
            return


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
