"""Devices that the container runtime gave to this pod: they show whether a missing GPU is the fault of the node.

A wrong setting (no GPU requested, an image with its own driver library, a missing capability) is the same on every
node, and must not cost the fleet all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from paddock.gpu.drivers.diagnosis import LIBRARY_FOLDERS

_GPU = re.compile(r"nvidia\d+")
_LIBRARY = re.compile(r"/(libnvidia-ml\.so\.\d+\.[\d.]+) ")


def expected_gpus(root: Path = Path("/")) -> int:
    """Return the number of GPUs that a healthy node's driver must show here; 0 where that is uncertain.

    Device files are opened, which may hang in the driver.
    """
    files = _device_files(root)
    return len(files) if from_runtime(root) and all(map(_may_open, (root / "dev/nvidiactl", *files))) else 0


def driver_started(root: Path = Path("/")) -> bool:
    """Return True where the driver was started before, so that it must answer at once. No device is opened."""
    daemon = root / "run/nvidia-persistenced/socket"
    return from_runtime(root) and daemon.exists()


def from_runtime(root: Path = Path("/")) -> bool:
    """Return True where device files and the driver's library are present, and every library is the node's own."""
    try:
        mounted = set(_LIBRARY.findall((root / "proc/self/mountinfo").read_text(errors="replace")))
    except OSError:
        return False
    installed = {file.name for folder in LIBRARY_FOLDERS for file in (root / folder).glob("libnvidia-ml.so.*.*")}
    return bool(mounted) and installed <= mounted and bool(_device_files(root))


def _device_files(root: Path) -> list[Path]:
    return [root / "dev" / name for name in _list_names(root / "dev") if _GPU.fullmatch(name)]


def _list_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _may_open(device: Path) -> bool:
    """Return False where a container lost the permission to open its devices; other errors are the driver's."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
