"""Which of the GPUs that may be had are the best for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.gpu.catalog_match import catalog_entry, is_model
from paddock.gpu.leases.eligibility import Device, share_left
from paddock.gpu.leases.request import Near, Request, Workload
from paddock.gpu.model import Closeness, Pair

if TYPE_CHECKING:
    from paddock.catalog.gpus import Gpu as Model
    from paddock.gpu.leases.lease import Lease

Part = Literal[
    "preferred", "well", "whole", "workload", "shared", "idle", "compute", "bf16", "narrow-types", "memory",
    "bandwidth", "efficiency", "smallness", "thrift", "graphics",
]  # fmt: skip
"""What is counted of a GPU, 0 to 1000. `workload` sums up those after `idle`, by the weights of its kind."""

_WEIGHTS: Mapping[Workload, Mapping[Part, int]] = MappingProxyType(
    {
        "training": {"compute": 4, "bf16": 2, "memory": 2, "bandwidth": 2},
        "inference": {"bandwidth": 4, "narrow-types": 2, "memory": 2, "efficiency": 2},
        "build": {"smallness": 7, "thrift": 3},
        "graphics": {"graphics": 6, "memory": 2, "bandwidth": 2},
    }
)
"""Training lives on matrix work, inference on reading its weights; a build needs a GPU, but no good one."""
_WITHOUT_GRAPHICS = frozenset({"7.0", "8.0", "9.0", "10.0", "10.3"})
"""Compute capabilities of chips without ray tracing, and mostly without video encoders."""
_FULL = 1000
_NEAR: Mapping[Closeness | None, int] = MappingProxyType(
    {"same-board": 6, "pcie-switch": 5, "pcie-switches": 4, "host-bridge": 3, "numa-node": 2, "system": 1, None: 0}
)
_SAME_SWITCH = _NEAR["pcie-switches"]
_SEARCHED = 16
_TROUBLES = frozenset({"hardware-slowdown", "hardware-thermal", "hardware-power-brake"})

Score = Mapping[Part, int]


@dataclass(frozen=True, slots=True)
class Links:
    """How every two GPUs reach each other, by UUID."""

    pairs: Mapping[frozenset[str], tuple[int, int]]

    @classmethod
    def of(cls, pairs: Iterable[Pair], uuids: Mapping[int, str]) -> Links:
        return cls(
            {
                frozenset({uuids[pair.a], uuids[pair.b]}): (pair.nvlinks, _NEAR[pair.closeness])
                for pair in pairs
                if pair.a in uuids and pair.b in uuids
            }
        )

    def between(self, a: Device, b: Device) -> tuple[int, int]:
        """NVLinks, and how near on the bus; nothing is known of a pair that was not read."""
        return self.pairs.get(frozenset({a.uuid, b.uuid}), (0, 0))

    def unknown(self, devices: Sequence[Device]) -> bool:
        """Whether it is not known how some two of them reach each other."""
        return any(self.between(a, b) == (0, 0) for a, b in combinations(devices, 2))

    def joined(self, devices: Sequence[Device], near: Near) -> bool:
        """Whether all are of one NVLink island, or below one PCIe switch."""
        if near == "pcie-switch":
            return all(self.between(a, b)[1] >= _SAME_SWITCH for a, b in combinations(devices, 2))
        if near == "nvlink":
            reached, waiting = set[str](), [devices[0]]
            while waiting:
                at = waiting.pop()
                reached.add(at.uuid)
                waiting += [one for one in devices if one.uuid not in reached and self.between(at, one)[0]]
            return len(reached) == len(devices)
        return True


def scores(devices: Sequence[Device], request: Request, leases: Sequence[Lease]) -> dict[str, Score]:
    """By UUID. Facts are measured by the best of `devices`; what is not known counts nothing."""
    facts = {one.uuid: catalog_entry(one.gpu) for one in devices} if request.workload else {}
    measured = {one.uuid: _measures(one, facts[one.uuid]) for one in devices} if request.workload else {}
    best = {
        part: max((found.get(part, 0) for found in measured.values()), default=0)
        for part in ("compute", "memory", "bandwidth", "efficiency", "smallness", "thrift", "bf16", "narrow-types",
                     "graphics")
    }  # fmt: skip
    found: dict[str, Score] = {}
    for one in devices:
        score: dict[Part, int] = {
            "preferred": _preferred(one, request.prefer),
            "well": 0 if _TROUBLES.intersection(one.gpu.throttle or ()) or one.gpu.ecc.uncorrected else _FULL,
            "whole": 0 if one.part else _FULL,
            "shared": 0 if request.share is None else round(_FULL * (1 - share_left(one, leases))),
            "idle": _FULL - 10 * (one.gpu.utilisation.gpu if one.gpu.utilisation.gpu is not None else 100),
        }
        if request.workload:
            weights = _WEIGHTS[request.workload]
            of_kind: dict[Part, int] = {
                part: round(_FULL * measured[one.uuid].get(part, 0) / best[part]) if best[part] else 0
                for part in weights
            }
            total = sum(weight * of_kind[part] for part, weight in weights.items())
            score |= {"workload": total // sum(weights.values()), **of_kind}
            if request.workload == "build":
                score["whole"] = 0
        found[one.uuid] = score
    return found


def best(
    devices: Sequence[Device], request: Request, found: Mapping[str, Score], links: Links
) -> tuple[Device, ...] | None:
    """The best `count` of `devices`, which come in the order of the bus; None where none are near enough.

    Every subset is looked at, of 16 GPUs at most: of more, those that are best by themselves. Between equals the
    first on the bus win.
    """
    count, near = request.count, request.near
    if count > len(devices):
        return None
    if count == 1:
        return (max(devices, key=lambda one: _alone(found[one.uuid])),)
    worth = _worth(devices, near, found, links)
    chosen, chosen_value = None, None
    for group in _groups(devices, near, links):
        searched = group
        if len(group) > _SEARCHED:
            favourites = sorted(group, key=lambda one: _alone(found[one.uuid]), reverse=True)[:_SEARCHED]
            searched = [one for one in group if one in favourites]
        for some in _candidates(searched, count, found, links):
            value = worth(some)
            if (chosen_value is None or value > chosen_value) and links.joined(some, near):
                chosen, chosen_value = some, value
    return chosen


def _candidates(
    devices: Sequence[Device], count: int, found: Mapping[str, Score], links: Links
) -> Iterable[tuple[Device, ...]]:
    """All subsets, or the first one where no other can be better."""
    same_score = len({tuple(sorted(found[one.uuid].items())) for one in devices}) == 1
    same_pairs = len({links.between(a, b) for a, b in combinations(devices, 2)}) <= 1
    one_model = len({one.gpu.name for one in devices}) == 1
    if len(devices) >= count and same_score and same_pairs and one_model:
        return (tuple(devices[:count]),)
    return combinations(devices, count)


def _alone(score: Score) -> tuple[int, ...]:
    return tuple(score.get(part, 0) for part in ("preferred", "well", "whole", "workload", "shared", "idle"))


def _worth(
    devices: Sequence[Device], near: Near, found: Mapping[str, Score], links: Links
) -> Callable[[Sequence[Device]], tuple[int, ...]]:
    """What decides between subsets, first things first. Looked up, since it is asked of thousands."""
    alone = {one.uuid: _alone(found[one.uuid]) for one in devices}
    between = {(a.uuid, b.uuid): links.between(a, b) for a, b in combinations(devices, 2)}

    def worth(some: Sequence[Device]) -> tuple[int, ...]:
        uuids = [one.uuid for one in some]
        preferred, well, whole, workload, shared, idle = map(sum, zip(*[alone[uuid] for uuid in uuids], strict=True))
        nvlinks, closeness = map(sum, zip(*[between[two] for two in combinations(uuids, 2)], strict=True))
        like = -len({one.gpu.name for one in some})
        if near == "none":
            return (preferred, well, whole, like, workload, shared, nvlinks, closeness, idle)
        return (preferred, well, whole, like, nvlinks, closeness, workload, shared, idle)

    return worth


def _groups(devices: Sequence[Device], near: Near, links: Links) -> list[list[Device]]:
    """Those that can be reached from each other; all, where that does not matter."""
    if near == "none":
        return [list(devices)]
    left, groups = list(devices), []
    while left:
        group, waiting = [], [left.pop(0)]
        while waiting:
            at = waiting.pop()
            group.append(at)
            joined = [one for one in left if links.joined((at, one), near)]
            left = [one for one in left if one not in joined]
            waiting += joined
        groups.append([one for one in devices if one in group])
    return groups


def _preferred(device: Device, models: Sequence[str]) -> int:
    """More for a model that is named earlier."""
    place = next((at for at, model in enumerate(models) if is_model(device.gpu, model)), len(models))
    return len(models) - place


def _measures(device: Device, fact: Model | None) -> dict[Part, float]:
    """What is known, in any unit: only the same of other GPUs is compared with it."""
    found: dict[Part, float] = {}
    memory = device.memory
    if memory and memory.total:
        found["memory"], found["smallness"] = memory.free, 1 / memory.total
    if device.gpu.compute_capability:
        found["graphics"] = device.gpu.compute_capability not in _WITHOUT_GRAPHICS and device.gpu.vendor == "nvidia"
    watt = (fact.tdp_w if fact else None) or device.gpu.power.limit
    if watt:
        found["thrift"] = 1 / watt
    if fact:
        matrix = max((fact.tflops.get(dtype, 0) for dtype in ("fp32", "tf32", "fp16", "bf16")), default=0)
        found["compute"] = matrix * device.size
        found["bf16"] = bool(fact.supports("bf16"))
        found["narrow-types"] = sum(bool(fact.supports(dtype)) for dtype in ("int8", "fp8", "fp4"))
        if fact.bandwidth_gbs:
            found["bandwidth"] = fact.bandwidth_gbs * device.size
            if watt:
                found["efficiency"] = fact.bandwidth_gbs / watt
    return found
