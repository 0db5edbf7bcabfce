"""Search for devices that hold the model: sets of equal devices, degrees, and two stages on two backends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paddock.models.model import Model, tensor_parallel
from paddock.models.shapes import LLAMA_KIND
from paddock.serve.placement.device import BACKENDS, Backend, Device
from paddock.serve.placement.memory import Layers, memory_use
from paddock.serve.placement.plan import Group, Placed
from paddock.serve.placement.request import Policy, Request


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search: the chosen groups, empty where nothing fits, and all sets of the backend that fit.

    `attempts` are those that do not fit, as near as they come.
    """

    chosen: tuple[Group, ...]
    fitting: tuple[Group, ...]
    attempts: tuple[Group, ...]


def search(request: Request, devices: Iterable[Device], policy: Policy) -> Search:
    """Return the fastest set of equal devices of the first backend that holds the model, else two stages if allowed."""
    usable = [device for device in sorted(devices, key=lambda device: device.key) if computes(request, device)]
    attempts: list[Group] = []
    order = backend_order(usable, policy)
    for backend in order:
        groups = [
            nearest_group(request, equal, policy)
            for equal in equal_sets((device for device in usable if device.backend == backend), policy)
        ]
        fitting = tuple(group for group in groups if not group.lacking)
        attempts += [group for group in groups if group.lacking]
        if fitting:
            return Search((fastest(fitting),), fitting, tuple(attempts))
    stages = two_stages(request, usable, policy) if policy.pipeline and policy.backend is None else ()
    return Search(stages, (), tuple(attempts))


def fits(request: Request, devices: Iterable[Device], policy: Policy) -> bool:
    """Return whether any placement exists."""
    return bool(search(request, devices, policy).chosen)


def computes(request: Request, device: Device) -> bool:
    """Return whether the device is available, and computes in the format that the request names."""
    return not device.unavailable and request.dtype not in device.lacks


def backend_order(devices: Iterable[Device], policy: Policy) -> tuple[Backend, ...]:
    """Return the backends to try: the one with most devices first. Processors serve where there is no GPU."""
    if policy.backend is not None:
        return (policy.backend,)
    counts = Counter(device.backend for device in devices)
    gpus = [backend for backend in BACKENDS if counts[backend] and backend != "cpu"]
    return tuple(sorted(gpus, key=lambda backend: -counts[backend])) or ("cpu",)


def equal_sets(devices: Iterable[Device], policy: Policy) -> tuple[tuple[Device, ...], ...]:
    """Return sets of devices that can share a model: of one backend, model and agent. Others stand alone.

    A part of a GPU cannot talk to another, and devices of unknown models may differ.
    """
    sets: dict[tuple[object, ...], list[Device]] = defaultdict(list)
    for device in devices:
        alone = device.name is None or device.part is not None or device.backend == "cpu"
        agent = "" if policy.across_agents else device.agent
        sets[device.key if alone else (agent, device.backend, device.name)].append(device)
    return tuple(tuple(equal) for equal in sets.values())


def degrees(model: Model, devices: int) -> tuple[int, ...]:
    """Return the degrees up to so many devices that divide the model, largest first."""
    return tuple(sorted({tensor_parallel(model, count) for count in range(1, devices + 1)}, reverse=True))


def nearest_group(request: Request, equal: Sequence[Device], policy: Policy) -> Group:
    """Return the largest group of a set that holds the model, else the one that lacks least."""
    ordered = sorted(equal, key=lambda device: (-device.allowed(policy.reserve), device.key))
    groups = []
    for degree in degrees(request.model, min(len(equal), policy.tensor_parallel)):
        group = group_of(request, ordered[:degree], policy)
        if not group.lacking:
            return group
        groups.append(group)
    return min(groups, key=lambda group: max(placed.lacking for placed in group.devices))


def group_of(request: Request, devices: Sequence[Device], policy: Policy, layers: Layers | None = None) -> Group:
    """Return the devices as one group with what each holds."""
    placed = tuple(
        Placed(device, memory_use(request, device, policy, len(devices), layers), device.allowed(policy.reserve))
        for device in sorted(devices, key=lambda device: device.key)
    )
    return Group(placed, request.dtype_on(devices[0]), layers)


def bandwidth(group: Group) -> float | None:
    """Return the sum of the memory bandwidths, which bounds a decode step; None where one is unknown."""
    speeds = [placed.device.bandwidth_gbs for placed in group.devices]
    return None if None in speeds else sum(speed or 0 for speed in speeds)


def fastest(groups: Sequence[Group]) -> Group:
    """Return the group with the highest bandwidth; where one's is unknown, the one with most memory."""
    speeds = [bandwidth(group) for group in groups]
    memories: list[float] = [sum(placed.allowed for placed in group.devices) for group in groups]
    scores = memories if None in speeds else [speed or 0 for speed in speeds]
    ranked = sorted(
        zip(groups, scores, memories, strict=True), key=lambda row: (-row[1], -row[2], row[0].devices[0].device.key)
    )
    return ranked[0][0]


def two_stages(request: Request, devices: Iterable[Device], policy: Policy) -> tuple[Group, ...]:
    """Return two stages on devices of different backends, as many layers as fit on the first; none where none fit.

    Models without the modules of Llama have none.
    """
    if request.model.architecture not in LLAMA_KIND:
        return ()
    roomiest: dict[Backend, Device] = {}
    for device in devices:
        best = roomiest.get(device.backend)
        if best is None or device.allowed(policy.reserve) > best.allowed(policy.reserve):
            roomiest[device.backend] = device
    layers = len(request.model.layers)
    for first in BACKENDS:
        for second in BACKENDS:
            if first == second or first not in roomiest or second not in roomiest:
                continue
            for count in range(layers - 1, 0, -1):
                start = group_of(request, [roomiest[first]], policy, Layers(count, True, False))
                end = group_of(request, [roomiest[second]], policy, Layers(layers - count, False, True))
                if not start.lacking and not end.lacking:
                    return start, end
    return ()
