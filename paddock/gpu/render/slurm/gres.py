"""Generic resources of a Slurm node: types, lines in gres.conf, and automatic detection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.eligibility import LeasableDevice
from paddock.gpu.render.fields import wrong
from paddock.gpu.render.request import RenderRequest

_MAKERS = ("nvidia_", "amd_", "tesla_", "geforce_", "instinct_", "radeon_", "quadro_")
MEMORY_FEATURE = "gpu_memory_mib"
_FLAGS = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env"}
_LIBRARY_FREE = (24, 11)
"""The first Slurm version whose AutoDetect=nvidia needs no NVML."""


def types(devices: Sequence[LeasableDevice]) -> dict[str, str]:
    """Return the TYPE of `--gres=gpu:TYPE` by UUID. Slurm requires a part of the name that it detects."""
    names = {_detected(device) for device in devices}
    return {device.uuid: device.part.profile if device.part else _short(_detected(device), names) for device in devices}


def autodetect(request: RenderRequest, version: str, plugins: Iterable[str]) -> str | None:
    """Return the AutoDetect mode that finds exactly the chosen devices, if any."""
    available = {plugin.strip().removeprefix("gpu_") for plugin in plugins}
    type_names = types(request.devices)
    clear = all(
        type_names[device.uuid] not in _detected(other)
        for device in request.devices
        for other in request.devices
        if not device.part and not other.part and type_names[device.uuid] != type_names[other.uuid]
    )
    if not request.whole or not clear:
        return None
    if request.vendor == "amd":
        return "rsmi" if "rsmi" in available else None
    if "nvml" in available:
        return "nvml"
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    divided = any(device.gpu.mig and device.gpu.mig.enabled for device in request.devices)
    return "nvidia" if "nvidia" in available and numbers >= _LIBRARY_FREE and not divided else None


def counts(devices: Sequence[LeasableDevice], shards: int) -> str:
    """Return the value of `Gres=` in slurm.conf."""
    counted = Counter(types(devices).values())
    gpus = [f"gpu:{kind}:{count}" for kind, count in counted.items()]
    return ",".join([*gpus, *([f"shard:{shards}"] if shards else [])])


def features(devices: Sequence[LeasableDevice]) -> str:
    """Return the value of `Feature=`: `gpu`, and the memory of a GPU of each type, which Slurm itself does not know."""
    memories: dict[str, int] = {}
    for device, kind in zip(devices, types(devices).values(), strict=True):
        memory = device.part.memory if device.part else device.gpu.memory
        if memory:
            memories[kind] = min(memory.total, memories.get(kind, memory.total))
    return ",".join(["gpu", *(f"{MEMORY_FEATURE}.{kind}.{total}" for kind, total in memories.items())])


def lines(request: RenderRequest, node: str, detected: str | None, shards: int) -> list[str]:
    """Return the lines of gres.conf. Raises GpuError where only Slurm itself could find the devices."""
    result = [f"NodeName={node} AutoDetect={detected}"] if detected else _explicit(request, node)
    return [*result, *([f"NodeName={node} Name=shard Count={shards}"] if shards else [])]


def same_numbers(request: RenderRequest) -> bool:
    """Return True where CUDA numbers the machine's GPUs as Slurm numbers the listed ones: from 0."""
    return [device.gpu.index for device in _numbered(request)] == list(range(len(request.devices)))


def _explicit(request: RenderRequest, node: str) -> list[str]:
    if any(device.part for device in request.devices):
        raise GpuError(
            "Slurm finds the device files of MIG parts through NVML alone, and of all of a machine's at once"
            "\n    expected: a Slurm with gpu_nvml.so, and every part of the machine"
            "\n    fix: install that plugin and say plugins=gpu_nvml, or switch MIG off"
        )
    devices = _numbered(request)
    kinds, files, links = types(devices), [_file(request, device) for device in devices], _links(request, devices)
    start, flags = f"NodeName={node} Name=gpu Type=", f"Flags={_FLAGS[str(request.vendor)]}"
    if links:
        rows = zip(devices, files, links, strict=True)
        return [f"{start}{kinds[device.uuid]} File={path} Links={links} {flags}" for device, path, links in rows]
    paired = [(kinds[device.uuid], path) for device, path in zip(devices, files, strict=True)]
    return [
        f"{start}{kind} File={_ranged([path for _, path in group])} {flags}"
        for kind, group in groupby(paired, key=lambda pair: pair[0])
    ]


def _file(request: RenderRequest, device: LeasableDevice) -> str:
    if request.inventory.machine.wsl:
        if len(request.devices) > 1:
            raise GpuError("WSL has one device file for all GPUs\n    fix: a Slurm with gpu_nvml.so, plugins=gpu_nvml")
        return "/dev/dxg"
    if device.gpu.minor is None:
        raise wrong(f"the device file of GPU {device.gpu.index} is not known", "its minor number in the inventory")
    return f"/dev/nvidia{device.gpu.minor}" if request.vendor == "nvidia" else f"/dev/dri/renderD{device.gpu.minor}"


def _numbered(request: RenderRequest) -> list[LeasableDevice]:
    """Return the devices in the order in which Slurm numbers them."""
    return sorted(request.devices, key=lambda device: (device.gpu.minor is None, device.gpu.minor or 0))


def _links(request: RenderRequest, devices: Iterable[LeasableDevice]) -> list[str]:
    """Return each GPU's NVLinks to the others in their order, -1 to itself; empty where there are none."""
    nvlinks = {frozenset((pair.a, pair.b)): pair.nvlinks for pair in request.inventory.pairs}
    indexes = [device.gpu.index for device in devices]
    rows = [[-1 if a == b else nvlinks.get(frozenset((a, b)), 0) for b in indexes] for a in indexes]
    return [",".join(map(str, row)) for row in rows] if any(count > 0 for row in rows for count in row) else []


def _ranged(paths: Sequence[str]) -> str:
    """Return the paths as one expression: `/dev/nvidia[0-3,5]`."""
    prefix = re.sub(r"\d+$", "", paths[0])
    numbers = sorted(int(path.removeprefix(prefix)) for path in paths if path != prefix)
    if len(numbers) < 2:
        return paths[0]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"{prefix}[{','.join(f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs)}]"


def detected_name(product: str) -> str:
    """Return the type as Slurm detects it: `nvidia_h100_80gb_hbm3`."""
    return re.sub(r"[^a-z0-9.+-]+", "_", product.lower()).strip("_")


def _detected(device: LeasableDevice) -> str:
    return detected_name(device.gpu.name or "gpu")


def _short(detected: str, every: Iterable[str]) -> str:
    """Return the name up to its first word with a digit, if that is unique among the machine's models."""
    rest = detected
    while start := next((maker for maker in _MAKERS if rest.startswith(maker)), None):
        rest = rest.removeprefix(start)
    words = rest.split("_")
    for end in range(1, len(words) + 1):
        short = "_".join(words[:end])
        if any(character.isdigit() for character in short) and not any(
            short in other for other in every if other != detected
        ):
            return short
    return rest
