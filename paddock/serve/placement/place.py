"""Placement of a model on devices: the plan with its reasons, or what each device lacks and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from paddock.models.presets import PRESETS, preset
from paddock.serve.placement.changes import changes
from paddock.serve.placement.device import Device
from paddock.serve.placement.plan import KINDS, Group, Infeasible, Plan, Reason, Unused, mib_up
from paddock.serve.placement.reasons import no_backend, notes, reasons
from paddock.serve.placement.request import Policy, Request
from paddock.serve.placement.search import (
    Search,
    computes,
    equal_sets,
    nearest_group,
    search,
)


def place(request: Request, devices: Iterable[Device], policy: Policy | None = None) -> Plan | Infeasible:
    """Return the plan, or Infeasible. The order of the devices makes no difference."""
    policy = policy or Policy()
    ordered = tuple(
        replace(device, unavailable=device.refusal(policy.share))
        for device in sorted(devices, key=lambda device: device.key)
    )
    result = search(request, ordered, policy)
    refused = tuple(
        Unused(device, device.unavailable or f"computes no {request.dtype}")
        for device in ordered
        if not computes(request, device)
    )
    if not result.chosen:
        why = (Reason("backend", no_backend(request, ordered, policy)),)
        return Infeasible(request, policy, result.attempts, refused, why, changes(request, ordered, policy))
    backend = result.chosen[0].backend
    return Plan(
        request,
        policy,
        KINDS[backend] if len(result.chosen) == 1 else "HeterogeneousPipeline",
        backend,
        result.chosen,
        tuple(_unused(request, ordered, policy, result, refused)),
        tuple(reasons(request, ordered, policy, result)),
        tuple(notes(request, result)),
    )


def _unused(
    request: Request, devices: Sequence[Device], policy: Policy, result: Search, refused: Sequence[Unused]
) -> Iterator[Unused]:
    """Yield every device that holds no part, by its key."""
    used = {placed.device for group in result.chosen for placed in group.devices}
    left = [device for device in devices if device not in used and not device.unavailable]
    suggestions: dict[Device, str] = {}
    for equal in equal_sets(left, policy):
        suggestions |= _suggestions(request, equal, policy)
    refusals = {unused.device: unused.reason for unused in refused}
    for device in devices:
        if device not in used:
            reason = refusals.get(device) or _why_unused(device, request, policy, result)
            yield Unused(device, reason, suggestions.get(device, ""))


def _why_unused(device: Device, request: Request, policy: Policy, result: Search) -> str:
    group = result.chosen[0]
    member = group.devices[0].device
    if len(result.chosen) > 1:
        return "a pipeline has two devices"
    if device.backend != group.backend:
        return f"another backend than {group.backend}, and a model runs on one"
    if device.name != member.name or device.part != member.part or device.name is None:
        return f"not equal to {member.name or member.label}: an all-reduce waits for the slowest"
    if device.agent != member.agent and not policy.across_agents:
        return f"on another agent than {member.agent}"
    lacking = group.devices[0].memory.needed - device.allowed(policy.reserve)
    if lacking > 0:
        return f"lacks {mib_up(lacking)} MiB of free memory"
    return f"degree {group.degree} takes {group.degree} devices"


def _suggestions(request: Request, equal: Sequence[Device], policy: Policy) -> dict[Device, str]:
    """Return the further instances that a set of unused devices holds, until no device is left."""
    texts: dict[Device, str] = {}
    left = list(equal)
    while left:
        group, text = _instance(request, left, policy)
        members = [placed.device for placed in group.devices] if group else left
        texts |= dict.fromkeys(members, text)
        left = [device for device in left if device not in members]
    return texts


def _instance(request: Request, equal: Sequence[Device], policy: Policy) -> tuple[Group | None, str]:
    """Return the largest instance on some of these devices: of the model, else of the largest that fits."""
    kept = request.stored or request.model.experts
    dtypes = (request.dtype,) if kept else dict.fromkeys((request.dtype, None, "int8", "int4"))
    for variant in (replace(request, dtype=dtype) for dtype in dtypes):
        if group := _fitting(variant, equal, policy):
            return group, f"load another instance here: it fits {_form(group)}"
    smaller = (model for model in map(preset, PRESETS) if model.parameters < request.model.parameters)
    for model in sorted(smaller, key=lambda model: -model.parameters):
        variant = Request(model, None, min(request.context, model.context), request.concurrency)
        if group := _fitting(variant, equal, policy):
            return group, f"too small for this model; {model.name} fits {_form(group)}"
    return None, "too small for any model that is sized here"


def _fitting(request: Request, equal: Sequence[Device], policy: Policy) -> Group | None:
    if not all(computes(request, device) for device in equal):
        return None
    group = nearest_group(request, equal, policy)
    return None if group.lacking else group


def _form(group: Group) -> str:
    if group.degree == 1:
        return f"in {group.dtype}"
    return f"in {group.dtype} over {', '.join(placed.device.label for placed in group.devices)}"
