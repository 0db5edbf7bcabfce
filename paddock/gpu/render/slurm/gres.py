"""Generic resources of a Slurm node: their types, their lines in gres.conf, and what Slurm can find by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.eligibility import Device
from paddock.gpu.render.problems import wrong
from paddock.gpu.render.request import Order

_MAKERS = ("nvidia_", "amd_", "tesla_", "geforce_", "instinct_", "radeon_", "quadro_")
_FLAGS = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env"}
_LIBRARY_FREE = (24, 11)
"""The Slurm from which AutoDetect=nvidia needs no NVML."""


def types(devices: Sequence[Device]) -> dict[str, str]:
    """By UUID: what `--gres=gpu:TYPE` says. Slurm wants a piece of the name that it detects."""
    names = {_detected(one) for one in devices}
    return {one.uuid: one.part.profile if one.part else _short(_detected(one), names) for one in devices}


def autodetect(order: Order, version: str, plugins: Iterable[str]) -> str | None:
    """What Slurm can find by itself, where that is the same as what was chosen."""
    have = {one.strip().removeprefix("gpu_") for one in plugins}
    found = types(order.devices)
    clear = all(
        found[one.uuid] not in _detected(other)
        for one in order.devices
        for other in order.devices
        if not one.part and not other.part and found[one.uuid] != found[other.uuid]
    )
    if not order.whole or not clear:
        return None
    if order.vendor == "amd":
        return "rsmi" if "rsmi" in have else None
    if "nvml" in have:
        return "nvml"
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    divided = any(one.gpu.mig and one.gpu.mig.enabled for one in order.devices)
    return "nvidia" if "nvidia" in have and numbers >= _LIBRARY_FREE and not divided else None


def counts(devices: Sequence[Device], shards: int) -> str:
    """The value of `Gres=` in slurm.conf."""
    counted = Counter(types(devices).values())
    found = [f"gpu:{kind}:{count}" for kind, count in counted.items()]
    return ",".join([*found, *([f"shard:{shards}"] if shards else [])])


def lines(order: Order, node: str, detected: str | None, shards: int) -> list[str]:
    """Of gres.conf. Raises GpuError where only Slurm itself could find the devices."""
    found = [f"NodeName={node} AutoDetect={detected}"] if detected else _explicit(order, node)
    return [*found, *([f"NodeName={node} Name=shard Count={shards}"] if shards else [])]


def same_numbers(order: Order) -> bool:
    """Whether CUDA numbers the GPUs of the machine as Slurm numbers those that are listed for it: from 0."""
    return [one.gpu.index for one in _numbered(order)] == list(range(len(order.devices)))


def _explicit(order: Order, node: str) -> list[str]:
    if any(one.part for one in order.devices):
        raise GpuError(
            "Slurm finds the device files of MIG parts through NVML alone, and of all of a machine's at once"
            "\n    expected: a Slurm with gpu_nvml.so, and every part of the machine"
            "\n    fix: install that plugin and say plugins=gpu_nvml, or switch MIG off"
        )
    devices = _numbered(order)
    kinds, files, links = types(devices), [_file(order, one) for one in devices], _links(order, devices)
    start, flags = f"NodeName={node} Name=gpu Type=", f"Flags={_FLAGS[str(order.vendor)]}"
    if links:
        each = zip(devices, files, links, strict=True)
        return [f"{start}{kinds[one.uuid]} File={path} Links={links} {flags}" for one, path, links in each]
    paired = [(kinds[one.uuid], path) for one, path in zip(devices, files, strict=True)]
    return [
        f"{start}{kind} File={_ranged([path for _, path in group])} {flags}"
        for kind, group in groupby(paired, key=lambda pair: pair[0])
    ]


def _file(order: Order, device: Device) -> str:
    if order.inventory.machine.wsl:
        if len(order.devices) > 1:
            raise GpuError("WSL has one device file for all GPUs\n    fix: a Slurm with gpu_nvml.so, plugins=gpu_nvml")
        return "/dev/dxg"
    if device.gpu.minor is None:
        raise wrong(f"the device file of GPU {device.gpu.index} is not known", "its minor number in the inventory")
    return f"/dev/nvidia{device.gpu.minor}" if order.vendor == "nvidia" else f"/dev/dri/renderD{device.gpu.minor}"


def _numbered(order: Order) -> list[Device]:
    """In the order in which Slurm numbers them."""
    return sorted(order.devices, key=lambda one: (one.gpu.minor is None, one.gpu.minor or 0))


def _links(order: Order, devices: Iterable[Device]) -> list[str]:
    """NVLinks of each GPU to the others in their order, -1 to itself; empty where there are none."""
    known = {frozenset((one.a, one.b)): one.nvlinks for one in order.inventory.pairs}
    indexes = [one.gpu.index for one in devices]
    rows = [[-1 if a == b else known.get(frozenset((a, b)), 0) for b in indexes] for a in indexes]
    return [",".join(map(str, row)) for row in rows] if any(one > 0 for row in rows for one in row) else []


def _ranged(paths: Sequence[str]) -> str:
    """`/dev/nvidia[0-3,5]`."""
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


def _detected(device: Device) -> str:
    """The name of its type as Slurm writes it: `nvidia_h100_80gb_hbm3`."""
    return re.sub(r"[^a-z0-9.+-]+", "_", (device.gpu.name or "gpu").lower()).strip("_")


def _short(detected: str, every: Iterable[str]) -> str:
    """Up to its first word with a digit, if that tells it from the machine's other models."""
    rest = detected
    while start := next((one for one in _MAKERS if rest.startswith(one)), None):
        rest = rest.removeprefix(start)
    words = rest.split("_")
    for end in range(1, len(words) + 1):
        short = "_".join(words[:end])
        if any(one.isdigit() for one in short) and not any(short in other for other in every if other != detected):
            return short
    return rest
