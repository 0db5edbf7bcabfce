"""Diagnosis of GPUs that cannot be used: the cause and the fix, from the driver's error and the files on disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paddock.gpu.drivers.base import DriverUnavailable
from paddock.gpu.model import Machine

LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_RECREATE = (
    "This container has lost its GPUs, as happens when `systemctl daemon-reload` runs on the host: recreate the"
    " container. To keep it from happening, give GPUs through CDI, or run"
    " `nvidia-ctk system create-dev-char-symlinks --create-all` on the host."
)


@dataclass(frozen=True, slots=True)
class Card:
    """NVIDIA GPU on the PCI bus, with or without a running driver."""

    address: str
    device_id: str
    driver: str | None

    def __str__(self) -> str:
        return f"{self.address} ({self.device_id}{f', held by {self.driver}' if self.driver else ''})"


@dataclass(frozen=True, slots=True)
class Traces:
    """NVIDIA hardware and software visible in the file system; `module` is the loaded driver's version."""

    module: str | None = None
    library: str | None = None
    cards: tuple[Card, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.module or self.library or self.cards)


def find_traces(root: Path = Path("/")) -> Traces:
    version = _text(root / "proc/driver/nvidia/version")
    module = re.search(r"Module.*?\s(\d+\.[\d.]+)\s", version)
    files = [file.name for folder in LIBRARY_FOLDERS for file in (root / folder).glob("libnvidia-ml.so.*.*")]
    library = files[0].removeprefix("libnvidia-ml.so.") if files else None
    return Traces(module[1] if module else None, library, tuple(_cards(root)))


def explain(error: DriverUnavailable, machine: Machine, traces: Traces) -> str:
    """Return one sentence with the cause and the fix."""
    match error.code:
        case None:
            return str(error)
        case 12 if "cannot open" not in str(error) and ".so" in str(error):
            return f"NVIDIA's library is there but cannot be loaded: {error}."
        case 12:
            return _without_library(machine, traces)
        case 9:
            return (
                "The NVIDIA driver is installed, but its kernel module is not loaded: `modprobe nvidia`, and check"
                " `dmesg` if that fails (after a new kernel the module has to be built again)."
            )
        case 18:
            versions = (
                f" (library {traces.library}, driver {traces.module})" if traces.library and traces.module else ""
            )
            return (
                f"The NVIDIA library and the loaded driver are of different versions{versions}: the driver was"
                " upgraded while it was in use. Reboot, or unload it with"
                " `modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia`."
            )
        case 999 if machine.container:
            return _RECREATE
        case 4 | 17:
            return (
                "No permission to use the NVIDIA driver: /dev/nvidiactl and /dev/nvidia0 must be readable and"
                " writable by this user, and allowed to this container if it is one (`docker run --gpus all`)."
            )
        case 27:
            return "The NVIDIA driver is still starting: try again in some seconds."
        case _:
            return f"The NVIDIA driver does not answer: {error}. The kernel log has details: `dmesg | grep -i nvrm`."


def explain_no_gpus(machine: Machine, traces: Traces, visible: str | None) -> str:
    """Return the reason why a working driver lists no GPU."""
    if machine.container:
        variable = f" (NVIDIA_VISIBLE_DEVICES={visible})" if visible is not None else ""
        return f"The NVIDIA driver runs, but this container has no GPU{variable}: `docker run --gpus all`."
    if traces.cards:
        return f"The NVIDIA driver runs, but lists none of this machine's GPUs: {', '.join(map(str, traces.cards))}."
    return "The NVIDIA driver runs, but there is no NVIDIA GPU in this machine."


def _without_library(machine: Machine, traces: Traces) -> str:
    if machine.wsl:
        return (
            "This is WSL, and it has no GPU: install NVIDIA's driver in Windows, not in Linux, and then"
            " `wsl --shutdown`."
        )
    if traces.module and machine.container:
        return (
            f"The host has the NVIDIA driver {traces.module}, but this container was started without GPUs: start it"
            " with `docker run --gpus all`, and with `utility` in NVIDIA_DRIVER_CAPABILITIES."
        )
    if traces.module:
        branch = traces.module.partition(".")[0]
        return (
            f"The NVIDIA driver {traces.module} is loaded, but its library libnvidia-ml.so.1 is not found: install the"
            f" package that holds it in the same version (Ubuntu: libnvidia-compute-{branch}; Debian:"
            " libnvidia-ml1; Amazon Linux, RHEL: nvidia-driver-cuda-libs)."
        )
    if traces.cards:
        held = next((card.driver for card in traces.cards if card.driver), None)
        why = (
            "they are reserved for virtual machines"
            if held == "vfio-pci"
            else "install NVIDIA's driver (`ubuntu-drivers install --gpgpu`)"
        )
        return f"NVIDIA GPUs are here, but no NVIDIA driver: {', '.join(map(str, traces.cards))}; {why}."
    return "This machine has no GPU: no NVIDIA driver or GPU, and no AMD one."


def _cards(root: Path) -> list[Card]:
    cards = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _text(device / "vendor") != _NVIDIA or not _text(device / "class").startswith(_DISPLAY):
            continue
        bound = device / "driver"
        name = bound.resolve().name if bound.exists() else None
        cards.append(Card(device.name, f"10de:{_text(device / 'device').removeprefix('0x')}", name))
    return cards


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
