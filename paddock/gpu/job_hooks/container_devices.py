"""What the container runtime handed to this pod: whether GPUs that are not there are the node's fault or a setting's.

A wrong setting (no GPU asked for, an image with a driver library of its own, a missing capability) is the same on
every node, and must not cost the fleet all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from paddock.gpu.drivers.diagnosis import LIBRARY_FOLDERS

_GPU = re.compile(r"nvidia\d+")
_LIBRARY = re.compile(r"/(libnvidia-ml\.so\.\d+\.[\d.]+) ")


def gpus(root: Path = Path("/")) -> int:
    """How many GPUs a healthy node's driver must show here; 0 where that cannot be said for certain.

    Device files are opened, which may take as long as the driver likes.
    """
    files = _device_files(root)
    return len(files) if by_runtime(root) and all(map(_allowed, (root / "dev/nvidiactl", *files))) else 0


def started(root: Path = Path("/")) -> bool:
    """Whether the driver was started long ago, and has to answer at once. No device is opened."""
    daemon = root / "run/nvidia-persistenced/socket"
    return by_runtime(root) and daemon.exists()


def by_runtime(root: Path = Path("/")) -> bool:
    """Whether device files and the driver's library are here, and no library is but the node's own."""
    try:
        mounted = set(_LIBRARY.findall((root / "proc/self/mountinfo").read_text(errors="replace")))
    except OSError:
        return False
    here = {file.name for folder in LIBRARY_FOLDERS for file in (root / folder).glob("libnvidia-ml.so.*.*")}
    return bool(mounted) and here <= mounted and bool(_device_files(root))


def _device_files(root: Path) -> list[Path]:
    return [root / "dev" / name for name in _names(root / "dev") if _GPU.fullmatch(name)]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _allowed(device: Path) -> bool:
    """A container that lost its devices may not open them; any other error is the driver's."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
