"""Placement of a model on devices: the plan with its reasons, or what each device lacks and what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from paddock.models.presets import PRESETS, preset
from paddock.serve.placement.changes import changes, smaller
from paddock.serve.placement.device import Device
from paddock.serve.placement.engines import VLLM_BACKENDS, engine_of, refusal
from paddock.serve.placement.plan import KINDS, Group, Infeasible, ModelPlacement, Reason, Unused, mib_up
from paddock.serve.placement.reasons import no_backend, notes, reasons
from paddock.serve.placement.request import Policy, Request
from paddock.serve.placement.search import Search, equal_sets, nearest_group, search

_AS_GGUF = "load another instance here, of a .gguf file of the model: llama.cpp computes it"


def place(request: Request, devices: Iterable[Device], policy: Policy | None = None) -> ModelPlacement | Infeasible:
    """Return the plan, or Infeasible. The order of the devices makes no difference."""
    policy = policy or Policy()
    policy = replace(policy, engine=engine_of(request.model, policy))
    ordered = tuple(
        replace(device, unavailable=device.refusal(policy.share))
        for device in sorted(devices, key=lambda device: device.key)
    )
    result = search(request, ordered, policy)
    refused = tuple(Unused(device, why) for device in ordered if (why := refusal(request, device, policy)))
    if result.chosen is None:
        why_not = (Reason("backend", no_backend(request, ordered, policy)),)
        return Infeasible(request, policy, result.attempts, refused, why_not, changes(request, ordered, policy))
    backend = result.chosen.backend
    return ModelPlacement(
        request, policy, KINDS[backend], backend, (result.chosen,),
        tuple(_unused(request, ordered, policy, result, refused)), tuple(reasons(request, ordered, policy, result)),
        tuple(notes(request, policy, result.chosen)),
    )  # fmt: skip


def _unused(
    request: Request, devices: Sequence[Device], policy: Policy, result: Search, refused: Sequence[Unused]
) -> Iterator[Unused]:
    """Yield every device that holds no part, by its key."""
    group = result.chosen
    used = {placed.device for placed in group.devices} if group else set()
    refusals = {unused.device: unused.reason for unused in refused}
    left = [device for device in devices if device not in used and device not in refusals]
    suggestions: dict[Device, str] = {}
    for equal in equal_sets(request, left, policy):
        suggestions |= _suggestions(request, equal, policy)
    for device in devices:
        if group and device not in used:
            reason = refusals.get(device) or _why_unused(device, policy, group)
            other = policy.engine == "vllm" and device.backend not in VLLM_BACKENDS and not device.unavailable
            yield Unused(device, reason, _AS_GGUF if other else suggestions.get(device, ""))


def _why_unused(device: Device, policy: Policy, group: Group) -> str:
    member = group.devices[0].device
    if device.backend != group.backend:
        return f"another backend than {group.backend}, and a model runs on one"
    if device.name != member.name or device.part != member.part or device.name is None:
        return f"not equal to {member.name or member.label}: each layer waits for the slowest"
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
    for variant in (replace(request, dtype=dtype) for dtype in (request.dtype, *smaller(request, policy))):
        if group := _fitting(variant, equal, policy):
            return group, f"load another instance here: it fits {_form(group)}"
    models = (model for model in map(preset, PRESETS) if model.parameters < request.model.parameters)
    for model in sorted(models, key=lambda model: -model.parameters):
        variant = Request(model, None, min(request.context, model.context), request.concurrency)
        if group := _fitting(variant, equal, policy):
            return group, f"too small for this model; {model.name} fits {_form(group)}"
    return None, "too small for any model that is sized here"


def _fitting(request: Request, equal: Sequence[Device], policy: Policy) -> Group | None:
    group = nearest_group(request, equal, policy)
    return None if group.lacking else group


def _form(group: Group) -> str:
    if group.degree == 1:
        return f"in {group.dtype}"
    return f"in {group.dtype} over {', '.join(placed.device.label for placed in group.devices)}"
