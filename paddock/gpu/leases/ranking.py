"""Rank eligible GPUs for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.gpu.catalog_match import catalog_entry, is_model
from paddock.gpu.leases.eligibility import LeasableDevice, share_left
from paddock.gpu.leases.request import Near, Request, Workload
from paddock.gpu.model import Closeness, Pair

if TYPE_CHECKING:
    from paddock.catalog.gpus import Gpu as Model
    from paddock.gpu.leases.lease import Lease

Part = Literal[
    "preferred", "well", "whole", "workload", "shared", "idle", "compute", "bf16", "narrow-types", "memory",
    "bandwidth", "efficiency", "smallness", "thrift", "graphics",
]  # fmt: skip
"""Parts of a GPU's score, 0 to 1000. `workload` is the weighted sum of those after `idle`."""

_WEIGHTS: Mapping[Workload, Mapping[Part, int]] = MappingProxyType(
    {
        "training": {"compute": 4, "bf16": 2, "memory": 2, "bandwidth": 2},
        "inference": {"bandwidth": 4, "narrow-types": 2, "memory": 2, "efficiency": 2},
        "build": {"smallness": 7, "thrift": 3},
        "graphics": {"graphics": 6, "memory": 2, "bandwidth": 2},
    }
)
"""Training is bound by matrix operations, inference by reading its weights; a build needs any GPU, best a small one."""
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
    """Connections of pairs of GPUs, by UUID."""

    pairs: Mapping[frozenset[str], tuple[int, int]]

    @classmethod
    def from_pairs(cls, pairs: Iterable[Pair], uuids: Mapping[int, str]) -> Links:
        return cls(
            {
                frozenset({uuids[pair.a], uuids[pair.b]}): (pair.nvlinks, _NEAR[pair.closeness])
                for pair in pairs
                if pair.a in uuids and pair.b in uuids
            }
        )

    def between(self, a: LeasableDevice, b: LeasableDevice) -> tuple[int, int]:
        """Return the NVLinks and the closeness on the bus; zeros for an unknown pair."""
        return self.pairs.get(frozenset({a.uuid, b.uuid}), (0, 0))

    def unknown(self, devices: Sequence[LeasableDevice]) -> bool:
        """Return True where the connection of any pair is unknown."""
        return any(self.between(a, b) == (0, 0) for a, b in combinations(devices, 2))

    def joined(self, devices: Sequence[LeasableDevice], near: Near) -> bool:
        """Return True where all are in one NVLink island, or below one PCIe switch."""
        if near == "pcie-switch":
            return all(self.between(a, b)[1] >= _SAME_SWITCH for a, b in combinations(devices, 2))
        if near == "nvlink":
            reached, waiting = set[str](), [devices[0]]
            while waiting:
                at = waiting.pop()
                reached.add(at.uuid)
                waiting += [device for device in devices if device.uuid not in reached and self.between(at, device)[0]]
            return len(reached) == len(devices)
        return True


def scores(devices: Sequence[LeasableDevice], request: Request, leases: Sequence[Lease]) -> dict[str, Score]:
    """Return scores by UUID, relative to the best of `devices`; unknown values count as 0."""
    facts = {device.uuid: catalog_entry(device.gpu) for device in devices} if request.workload else {}
    measured = {device.uuid: _measures(device, facts[device.uuid]) for device in devices} if request.workload else {}
    best = {
        part: max((measures.get(part, 0) for measures in measured.values()), default=0)
        for part in ("compute", "memory", "bandwidth", "efficiency", "smallness", "thrift", "bf16", "narrow-types",
                     "graphics")
    }  # fmt: skip
    result: dict[str, Score] = {}
    for device in devices:
        score: dict[Part, int] = {
            "preferred": _preferred(device, request.prefer),
            "well": 0 if _TROUBLES.intersection(device.gpu.throttle or ()) or device.gpu.ecc.uncorrected else _FULL,
            "whole": 0 if device.part else _FULL,
            "shared": 0 if request.share is None else round(_FULL * (1 - share_left(device, leases))),
            "idle": _FULL - 10 * (device.gpu.utilisation.gpu if device.gpu.utilisation.gpu is not None else 100),
        }
        if request.workload:
            weights = _WEIGHTS[request.workload]
            of_kind: dict[Part, int] = {
                part: round(_FULL * measured[device.uuid].get(part, 0) / best[part]) if best[part] else 0
                for part in weights
            }
            total = sum(weight * of_kind[part] for part, weight in weights.items())
            score |= {"workload": total // sum(weights.values()), **of_kind}
            if request.workload == "build":
                score["whole"] = 0
        result[device.uuid] = score
    return result


def best(
    devices: Sequence[LeasableDevice], request: Request, scores_by_uuid: Mapping[str, Score], links: Links
) -> tuple[LeasableDevice, ...] | None:
    """Return the best `count` of `devices`, given in PCI order; None where none are near enough.

    All subsets are compared, of the 16 best GPUs if there are more. Ties go to the first in PCI order.
    """
    count, near = request.count, request.near
    if count > len(devices):
        return None
    if count == 1:
        return (max(devices, key=lambda device: _own_rank(scores_by_uuid[device.uuid])),)
    worth = _worth(devices, near, scores_by_uuid, links)
    chosen, chosen_value = None, None
    for group in _groups(devices, near, links):
        searched = group
        if len(group) > _SEARCHED:
            favourites = sorted(group, key=lambda device: _own_rank(scores_by_uuid[device.uuid]), reverse=True)[
                :_SEARCHED
            ]
            searched = [device for device in group if device in favourites]
        for subset in _candidates(searched, count, scores_by_uuid, links):
            value = worth(subset)
            if (chosen_value is None or value > chosen_value) and links.joined(subset, near):
                chosen, chosen_value = subset, value
    return chosen


def _candidates(
    devices: Sequence[LeasableDevice], count: int, scores_by_uuid: Mapping[str, Score], links: Links
) -> Iterable[tuple[LeasableDevice, ...]]:
    """Return all subsets, or only the first where no other can be better."""
    same_score = len({tuple(sorted(scores_by_uuid[device.uuid].items())) for device in devices}) == 1
    same_pairs = len({links.between(a, b) for a, b in combinations(devices, 2)}) <= 1
    one_model = len({device.gpu.name for device in devices}) == 1
    if len(devices) >= count and same_score and same_pairs and one_model:
        return (tuple(devices[:count]),)
    return combinations(devices, count)


def _own_rank(score: Score) -> tuple[int, ...]:
    return tuple(score.get(part, 0) for part in ("preferred", "well", "whole", "workload", "shared", "idle"))


def _worth(
    devices: Sequence[LeasableDevice], near: Near, scores_by_uuid: Mapping[str, Score], links: Links
) -> Callable[[Sequence[LeasableDevice]], tuple[int, ...]]:
    """Return the sort key of subsets, most important part first. Precomputed, for thousands of subsets."""
    own_ranks = {device.uuid: _own_rank(scores_by_uuid[device.uuid]) for device in devices}
    between = {(a.uuid, b.uuid): links.between(a, b) for a, b in combinations(devices, 2)}

    def worth(subset: Sequence[LeasableDevice]) -> tuple[int, ...]:
        uuids = [device.uuid for device in subset]
        preferred, well, whole, workload, shared, idle = map(
            sum, zip(*[own_ranks[uuid] for uuid in uuids], strict=True)
        )
        nvlinks, closeness = map(sum, zip(*[between[two] for two in combinations(uuids, 2)], strict=True))
        uniformity = -len({device.gpu.name for device in subset})
        if near == "none":
            return (preferred, well, whole, uniformity, workload, shared, nvlinks, closeness, idle)
        return (preferred, well, whole, uniformity, nvlinks, closeness, workload, shared, idle)

    return worth


def _groups(devices: Sequence[LeasableDevice], near: Near, links: Links) -> list[list[LeasableDevice]]:
    """Return the groups of connected devices; one group of all where connections do not matter."""
    if near == "none":
        return [list(devices)]
    remaining, groups = list(devices), []
    while remaining:
        group, waiting = [], [remaining.pop(0)]
        while waiting:
            at = waiting.pop()
            group.append(at)
            joined = [device for device in remaining if links.joined((at, device), near)]
            remaining = [device for device in remaining if device not in joined]
            waiting += joined
        groups.append([device for device in devices if device in group])
    return groups


def _preferred(device: LeasableDevice, models: Sequence[str]) -> int:
    """Return a higher number for a model named earlier."""
    place = next((at for at, model in enumerate(models) if is_model(device.gpu, model)), len(models))
    return len(models) - place


def _measures(device: LeasableDevice, fact: Model | None) -> dict[Part, float]:
    """Return the known measures, in any unit: each is only compared with that of other GPUs."""
    measures: dict[Part, float] = {}
    memory = device.memory
    if memory and memory.total:
        measures["memory"], measures["smallness"] = memory.free, 1 / memory.total
    if device.gpu.compute_capability:
        measures["graphics"] = device.gpu.compute_capability not in _WITHOUT_GRAPHICS and device.gpu.vendor == "nvidia"
    watt = (fact.tdp_w if fact else None) or device.gpu.power.limit
    if watt:
        measures["thrift"] = 1 / watt
    if fact:
        matrix = max((fact.tflops.get(dtype, 0) for dtype in ("fp32", "tf32", "fp16", "bf16")), default=0)
        measures["compute"] = matrix * device.size
        measures["bf16"] = bool(fact.supports("bf16"))
        measures["narrow-types"] = sum(bool(fact.supports(dtype)) for dtype in ("int8", "fp8", "fp4"))
        if fact.bandwidth_gbs:
            measures["bandwidth"] = fact.bandwidth_gbs * device.size
            if watt:
                measures["efficiency"] = fact.bandwidth_gbs / watt
    return measures
