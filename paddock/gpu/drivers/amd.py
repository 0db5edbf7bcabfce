"""AMD GPUs, read from the files that the amdgpu driver writes into sysfs: no library and no root needed.

amdsmi adds names and ECC counts where it is installed and works.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.gpu import model
from paddock.gpu.drivers import pci
from paddock.gpu.drivers.base import Reading
from paddock.gpu.host.machine import owner, sees_host_processes

_AMD = "0x1002"
_MIB = 1 << 20
_ARCHITECTURES = (
    ("gfx908", "cdna"), ("gfx90a", "cdna2"), ("gfx94", "cdna3"), ("gfx95", "cdna4"), ("gfx9", "vega"),
    ("gfx101", "rdna"), ("gfx103", "rdna2"), ("gfx11", "rdna3"), ("gfx12", "rdna4"),
)  # fmt: skip
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Of PCIe, by GT/s."""


class Amd:
    """Reader of AMD GPUs. `root` holds /sys, /proc and /dev. Never raises: an unreadable file becomes a note."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading:
        notes: list[str] = []
        cards = [_Files(folder, notes) for folder in self._folders()]
        nodes = _nodes(self._root)
        smi = _smi() if cards else {}
        gpus = tuple(self._gpu(index, card, nodes, smi, notes, processes) for index, card in enumerate(cards))
        if gpus and not os.access(self._root / "dev/kfd", os.R_OK | os.W_OK):
            notes.append(
                "/dev/kfd cannot be opened, so no program can compute on the GPUs: join its group (`render`), and pass"
                " it to the container (`--device /dev/kfd --device /dev/dri`)."
            )
        pairs = tuple(
            model.Pair(a.index, b.index, pci.closeness(a.pci_address, b.pci_address, self._root))
            for a in gpus
            for b in gpus[a.index + 1 :]
            if topology
        )
        version = _Files(self._root / "sys/module/amdgpu", []).text("version")
        return Reading(
            "amdsmi" if smi else "amd-sysfs", gpus, pairs, model.Driver(version) if version else None, (*notes,)
        )

    def _folders(self) -> list[Path]:
        """Return the folders of AMD's display and compute devices, in PCI order."""
        drm = _listed(self._root / "sys/class/drm", "card*")
        devices = {card.resolve() / "device" for card in drm if re.fullmatch(r"card\d+", card.name)}
        return sorted(folder.resolve() for folder in devices if _Files(folder, []).text("vendor") == _AMD)

    def _gpu(
        self,
        index: int,
        files: _Files,
        nodes: Mapping[str, Mapping[str, int]],
        smi: Mapping[str, Mapping[str, Any]],
        notes: list[str],
        processes: bool,
    ) -> model.Gpu:
        address, unique = files.folder.name, files.text("unique_id")
        node, extra = nodes.get(address, {}), smi.get(address, {})
        target = _target(node.get("gfx_target_version", 0))
        total, used = files.number("mem_info_vram_total"), files.number("mem_info_vram_used")
        bound = (files.folder / "driver").resolve().name
        state: model.State = "ok" if total is not None else "unreadable"
        reason = None if total is not None else f"its driver reports no memory ({bound})"
        if total is not None and not unique:
            notes.append(f"GPU {index}: it has no unique_id, so it is never leased.")
        hwmon = files.monitor()
        return model.Gpu(
            index,
            f"GPU-{unique}" if unique else None,
            extra.get("name") or files.text("product_name"),
            "amd",
            state,
            reason,
            minor=_render(files.folder),
            device_group=_group(self._root / "dev/kfd"),
            pci_address=address,
            pci_device_id=f"1002:{(files.text('device') or '0x').removeprefix('0x')}",
            serial=files.text("serial_number"),
            architecture=next((name for start, name in _ARCHITECTURES if target and target.startswith(start)), None),
            compute_capability=target,
            cores=node["simd_count"] * (16 if target.startswith("gfx9") else 32) if target else None,
            memory=None if total is None or used is None else _memory(total, used),
            power=model.Power(
                draw=_scaled(hwmon.number("power1_average") or hwmon.number("power1_input"), 1e6),
                limit=_scaled(hwmon.number("power1_cap"), 1e6),
                default_limit=_scaled(hwmon.number("power1_cap_default"), 1e6),
                min_limit=_scaled(hwmon.number("power1_cap_min"), 1e6),
                max_limit=_scaled(hwmon.number("power1_cap_max"), 1e6),
            ),
            clocks=model.Clocks(_whole(hwmon.number("freq1_input"), 1e6), _whole(hwmon.number("freq2_input"), 1e6)),
            temperature=model.Temperature(
                _whole(hwmon.labelled("temp", "junction") or hwmon.number("temp1_input"), 1e3),
                _whole(hwmon.labelled("temp", "mem"), 1e3),
            ),
            utilisation=model.Utilisation(files.number("gpu_busy_percent"), files.number("mem_busy_percent")),
            ecc=extra.get("ecc") or files.ecc(),
            pcie=model.Pcie(
                _generation(files.text("current_link_speed")),
                files.number("current_link_width"),
                _generation(files.text("max_link_speed")),
                files.number("max_link_width"),
            ),
            numa_node=pci.numa_node(address, self._root),
            cpus=pci.cpus(address, self._root),
            vbios=files.text("vbios_version"),
            processes=_processes(self._root, node.get("gpu_id")) if processes else None,
        )


@dataclass(frozen=True, slots=True)
class _Files:
    """One-value files of a folder. An absent file is None; an unreadable one adds a note too."""

    folder: Path
    notes: list[str]

    def text(self, name: str) -> str | None:
        path = self.folder / name
        try:
            return path.read_text(errors="replace").strip() or None
        except PermissionError:
            self.notes.append(f"{path} cannot be read: run as root, or join the file's group.")
        except OSError:
            pass
        return None

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text and re.fullmatch(r"-?\d+", text) else None

    def monitor(self) -> _Files:
        return _Files(next(iter(_listed(self.folder / "hwmon", "hwmon*")), self.folder / "hwmon"), self.notes)

    def labelled(self, kind: str, label: str) -> int | None:
        for path in _listed(self.folder, f"{kind}*_label"):
            if self.text(path.name) == label:
                return self.number(path.name.replace("_label", "_input"))
        return None

    def ecc(self) -> model.Ecc:
        """Sum the counts of all the chip's blocks, whose files hold `ue: 0` and `ce: 0`."""
        counts = {"ue": 0, "ce": 0}
        blocks = _listed(self.folder / "ras", "*_err_count")
        for block in blocks:
            for kind, count in re.findall(r"^(ue|ce): (\d+)$", self.text(f"ras/{block.name}") or "", re.MULTILINE):
                counts[kind] += int(count)
        return model.Ecc(enabled=True, corrected=counts["ce"], uncorrected=counts["ue"]) if blocks else model.Ecc()


def _listed(folder: Path, pattern: str) -> list[Path]:
    """Return the matching entries, sorted; none where the folder cannot be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _nodes(root: Path) -> dict[str, dict[str, int]]:
    """Return the compute driver's properties of each GPU, by PCI address."""
    nodes = {}
    for folder in _listed(root / "sys/class/kfd/kfd/topology/nodes", "*"):
        files = _Files(folder, [])
        pairs = re.findall(r"^(\w+) (\d+)$", files.text("properties") or "", re.MULTILINE)
        node = {name: int(value) for name, value in pairs}
        where = node.get("location_id", 0)
        if node.get("gfx_target_version"):
            node["gpu_id"] = files.number("gpu_id") or 0
            node.setdefault("simd_count", 0)
            bus, device, function = where >> 8 & 0xFF, where >> 3 & 0x1F, where & 7
            nodes[f"{node.get('domain', 0):04x}:{bus:02x}:{device:02x}.{function}"] = node
    return nodes


def _target(version: int) -> str:
    """Return `gfx942` for 90402."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _processes(root: Path, gpu_id: int | None) -> tuple[model.Process, ...] | None:
    """Return the processes that the compute driver lists, by pids of the host."""
    folder = root / "sys/class/kfd/kfd/proc"
    if gpu_id is None or not os.path.isdir(folder):  # Path.is_dir raises without permission
        return None
    host = sees_host_processes(root)
    processes = []
    for process_folder in _listed(folder, "[0-9]*"):
        used = _Files(process_folder, []).number(f"vram_{gpu_id}")
        if used is not None:
            pid = int(process_folder.name)
            processes.append(model.Process(pid, "compute", used // _MIB, *(owner(pid, root) if host else (None, None))))
    return tuple(processes)


def _smi() -> dict[str, dict[str, Any]]:
    """Return amdsmi's facts by PCI address; empty where it is absent or broken, which its import can be in any way."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            amdsmi = importlib.import_module("amdsmi")
            amdsmi.amdsmi_init()
            try:
                handles = amdsmi.amdsmi_get_processor_handles()
                return {amdsmi.amdsmi_get_gpu_device_bdf(handle): _smi_facts(amdsmi, handle) for handle in handles}
            finally:
                amdsmi.amdsmi_shut_down()
    except Exception:
        return {}


def _smi_facts(amdsmi: Any, handle: Any) -> dict[str, Any]:
    counts = amdsmi.amdsmi_get_gpu_total_ecc_count(handle)
    return {
        "name": amdsmi.amdsmi_get_gpu_asic_info(handle).get("market_name"),
        "ecc": model.Ecc(True, counts["correctable_count"], counts["uncorrectable_count"]),
    }


def _render(folder: Path) -> int | None:
    node = next(iter(_listed(folder / "drm", "renderD*")), None)
    return int(node.name.removeprefix("renderD")) if node else None


def _group(path: Path) -> int | None:
    try:
        return path.stat().st_gid
    except OSError:
        return None


def _memory(total: int, used: int) -> model.Memory:
    return model.Memory(total // _MIB, used // _MIB, (total - used) // _MIB)


def _generation(speed: str | None) -> int | None:
    match = re.match(r"([\d.]+) GT/s", speed or "")
    return _GENERATIONS.get(float(match[1])) if match else None


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _whole(value: int | None, unit: float) -> int | None:
    return None if value is None else round(value / unit)
