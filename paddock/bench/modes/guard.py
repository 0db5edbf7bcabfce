"""Process that caps a GPU and gives the cap back when its parent ends, also by SIGKILL.

It writes one line of JSON when the cap is set or refused, then waits for the end of its standard input. The limit from
before stands in a file meanwhile: where this process is killed too, the next one gives that limit back.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from paddock import files

_POLL = 1.0
"""Seconds after which the parent is looked for: a child of its own may hold the pipe open."""


def main(uuid: str, power_mw: str, clock_mhz: str, folder: str) -> int:
    """Set the caps that are not 0, wait, and restore. `folder` holds the limits from before."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    record = Path(folder, f"cap-{uuid}.json")
    try:
        from paddock.gpu.drivers.nvml_calls import load

        nvml = load()
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        with files.locked(record.with_suffix(".lock")):
            before = _before(record, nvml, device) if int(power_mw) else 0
            try:
                _set(nvml, device, int(power_mw), int(clock_mhz))
                _say({"before_mw": before})
                _wait(parent)
            finally:
                _restore(nvml, device, before, int(clock_mhz))
                record.unlink(missing_ok=True)
    except BlockingIOError:
        _say({"error": "another benchmark caps this GPU"})
        return 1
    except Exception as error:
        _say({"error": " ".join(str(error).split()) or type(error).__name__})
        return 1
    return 0


def _before(record: Path, nvml: Any, device: Any) -> int:
    """Return the power limit to give back, in milliwatts, and note it: that of a killed guard comes first."""
    try:
        return int(json.loads(record.read_text())["before_mw"])
    except (OSError, ValueError, KeyError, TypeError):
        limit = int(nvml.nvmlDeviceGetPowerManagementLimit(device))
        files.write(record, json.dumps({"before_mw": limit}))
        return limit


def _set(nvml: Any, device: Any, power_mw: int, clock_mhz: int) -> None:
    if power_mw:
        low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(device)
        if not low <= power_mw <= high:
            raise ValueError(f"{power_mw / 1000:g} W is outside what this GPU takes: {low / 1000:g} to {high / 1000:g}")
        nvml.nvmlDeviceSetPowerManagementLimit(device, power_mw)
    if clock_mhz:
        nvml.nvmlDeviceSetGpuLockedClocks(device, 0, clock_mhz)


def _restore(nvml: Any, device: Any, before_mw: int, clock_mhz: int) -> None:
    if before_mw and nvml.nvmlDeviceGetPowerManagementLimit(device) != before_mw:
        nvml.nvmlDeviceSetPowerManagementLimit(device, before_mw)
    if clock_mhz:
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
