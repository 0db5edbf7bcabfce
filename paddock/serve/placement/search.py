"""Search for devices that hold the model: sets of equal devices, and how many of a set share it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paddock.models.model import tensor_parallel
from paddock.serve.placement.device import BACKENDS, Backend, Device
from paddock.serve.placement.engines import engine_of, format_on, refusal
from paddock.serve.placement.memory import memory_use
from paddock.serve.placement.plan import Group, Placed
from paddock.serve.placement.request import Policy, Request


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search: the chosen group, None where nothing fits, and all sets of the backend that fit.

    `attempts` are those that do not fit, as near as they come.
    """

    chosen: Group | None
    fitting: tuple[Group, ...]
    attempts: tuple[Group, ...]


def search(request: Request, devices: Iterable[Device], policy: Policy) -> Search:
    """Return the fastest set of equal devices of the first backend that holds the model."""
    ordered = sorted(devices, key=lambda device: device.key)
    usable = [device for device in ordered if not refusal(request, device, policy)]
    attempts: list[Group] = []
    for backend in backend_order(usable, policy):
        groups = [
            nearest_group(request, equal, policy)
            for equal in equal_sets(request, (device for device in usable if device.backend == backend), policy)
        ]
        fitting = tuple(group for group in groups if not group.lacking)
        attempts += [group for group in groups if group.lacking]
        if fitting:
            return Search(fastest(fitting), fitting, tuple(attempts))
    return Search(None, (), tuple(attempts))


def fits(request: Request, devices: Iterable[Device], policy: Policy) -> bool:
    """Return whether any placement exists."""
    return search(request, devices, policy).chosen is not None


def backend_order(devices: Iterable[Device], policy: Policy) -> tuple[Backend, ...]:
    """Return the backends to try: the one with most devices first. CPUs serve where there is no GPU."""
    if policy.backend is not None:
        return (policy.backend,)
    counts = Counter(device.backend for device in devices)
    gpus = [backend for backend in BACKENDS if counts[backend] and backend != "cpu"]
    return tuple(sorted(gpus, key=lambda backend: -counts[backend])) or ("cpu",)


def equal_sets(request: Request, devices: Iterable[Device], policy: Policy) -> tuple[tuple[Device, ...], ...]:
    """Return sets of devices that can share a model: of one backend, model and agent. Others are alone.

    A part of a GPU cannot talk to another, and devices of unknown models may differ. Agents share by vLLM alone.
    """
    across = policy.across_agents and engine_of(request.model, policy) == "vllm"
    sets: dict[tuple[object, ...], list[Device]] = defaultdict(list)
    for device in devices:
        alone = device.name is None or device.part is not None or device.backend == "cpu"
        agent = "" if across else device.agent
        sets[device.key if alone else (agent, device.backend, device.name)].append(device)
    return tuple(tuple(equal) for equal in sets.values())


def degrees(request: Request, devices: int, policy: Policy) -> tuple[int, ...]:
    """Return the degrees up to so many devices, largest first: vLLM's divide the model, llama.cpp splits rows."""
    counts = set(range(1, devices + 1))
    if engine_of(request.model, policy) == "vllm":
        counts = {tensor_parallel(request.model, count) for count in counts}
    return tuple(sorted(counts, reverse=True))


def nearest_group(request: Request, equal: Sequence[Device], policy: Policy) -> Group:
    """Return the largest group of a set that holds the model, else the one that lacks least."""
    ordered = sorted(equal, key=lambda device: (-device.allowed(policy.reserve), device.key))
    groups = []
    for degree in degrees(request, min(len(equal), policy.tensor_parallel), policy):
        group = group_of(request, ordered[:degree], policy)
        if not group.lacking:
            return group
        groups.append(group)
    return min(groups, key=lambda group: max(placed.lacking for placed in group.devices))


def group_of(request: Request, devices: Sequence[Device], policy: Policy) -> Group:
    """Return the devices as one group with what each holds."""
    ordered = sorted(devices, key=lambda device: device.key)
    placed = tuple(
        Placed(
            device,
            memory_use(request, device, policy, len(devices), first=device is ordered[0]),
            device.allowed(policy.reserve),
        )
        for device in ordered
    )
    return Group(placed, format_on(request, devices[0], policy))


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
