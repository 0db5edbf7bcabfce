"""Reasons in words for each choice of a plan, and notes on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paddock.models.shapes import LLAMA_KIND
from paddock.serve.own.refusals import packing_refusal, serving_refusal
from paddock.serve.placement.device import BACKENDS, Device
from paddock.serve.placement.memory import MIB
from paddock.serve.placement.plan import Group, Infeasible, Reason, mib_up
from paddock.serve.placement.request import Policy, Request
from paddock.serve.placement.search import Search, bandwidth, computes, equal_sets

_MOST_NAMED = 3
"""Devices that a summary names."""


def no_backend(request: Request, devices: Sequence[Device], policy: Policy) -> str:
    """Return the reason why nothing is placed."""
    available = [device for device in devices if not device.unavailable]
    if not devices:
        return "there is no device"
    if not available:
        return f"none of the {len(devices)} devices is available"
    if policy.backend and not any(device.backend == policy.backend for device in available):
        return f"no {policy.backend} device is available: {_there(available)}"
    if policy.backend:
        return f"the model does not fit on {policy.backend}: {_there(available)}"
    architecture = request.model.architecture
    stages = f"; a {architecture} cannot run in stages" if policy.pipeline and architecture not in LLAMA_KIND else ""
    return f"no backend holds the model: {_there(available)}{stages}"


def summary(result: Infeasible) -> str:
    """Return in one line why nothing holds the model, and what its devices lack."""
    lacking = [
        f"{placed.device.label} lacks {mib_up(placed.lacking)} MiB"
        for group in result.attempts
        for placed in group.devices
        if placed.lacking
    ]
    refused = [f"{unused.device.label}: {unused.reason}" for unused in result.refused]
    named = lacking or refused
    more = [f"and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    return "; ".join([*(reason.text for reason in result.reasons), *named[:_MOST_NAMED], *more])


def reasons(request: Request, devices: Sequence[Device], policy: Policy, result: Search) -> Iterator[Reason]:
    """Yield every choice of the plan with its reason."""
    available = [device for device in devices if computes(request, device)]
    group = result.chosen[0]
    if len(result.chosen) > 1:
        yield Reason("class", "no backend holds the model alone, and the policy allows two stages on two backends")
        for stage in result.chosen:
            count = stage.layers.count if stage.layers else 0
            yield Reason("stage", f"{count} of {len(request.model.layers)} layers on {stage.devices[0].device.label}")
        yield _dtype(request, group)
        return
    yield Reason("class", f"every device of the plan is {group.backend}")
    yield Reason("backend", _why_backend(group, available, policy, result))
    yield Reason("devices", _why_devices(group, result, policy))
    yield Reason("degree", _why_degree(request, group, available, policy))
    yield _dtype(request, group)


def _why_backend(group: Group, available: Sequence[Device], policy: Policy, result: Search) -> str:
    backend = group.backend
    if policy.backend:
        return f"{backend}: the policy names it"
    if backend == "cpu":
        return "cpu: no GPU is available"
    counts = Counter(device.backend for device in available if device.backend != "cpu")
    if bigger := {attempt.backend for attempt in result.attempts} - {backend}:
        names = " and ".join(sorted(bigger, key=BACKENDS.index))
        return f"{backend}: the model does not fit on {names}, of which there are as many devices or more"
    if len(counts) == 1:
        return f"{backend}: the only one"
    if list(counts.values()).count(counts[backend]) > 1:
        return f"{backend}: as many devices as another ({_counts(available)}); the order is {', '.join(BACKENDS)}"
    return f"{backend}: most devices ({_counts(available)})"


def _there(devices: Iterable[Device]) -> str:
    present = list(devices)
    return f"there {'is' if len(present) == 1 else 'are'} {_counts(present)}"


def _counts(devices: Iterable[Device]) -> str:
    counts = Counter(device.backend for device in devices)
    return ", ".join(f"{counts[backend]} {backend}" for backend in BACKENDS if counts[backend])


def _why_devices(group: Group, result: Search, policy: Policy) -> str:
    labels = ", ".join(placed.device.label for placed in group.devices)
    if len(result.fitting) == 1:
        return f"{labels}: the only set of equal devices that holds the model"
    others = f"of {len(result.fitting)} sets of equal devices that hold the model"
    speeds = [bandwidth(candidate) for candidate in result.fitting]
    if None in speeds:
        return f"{labels}: most memory {others}; the bandwidth of some is unknown"
    return f"{labels}: highest memory bandwidth {others}, {bandwidth(group):g} GB/s together"


def _why_degree(request: Request, group: Group, available: Sequence[Device], policy: Policy) -> str:
    devices = {placed.device for placed in group.devices}
    (count,) = {len(equal) for equal in equal_sets(available, policy) if devices <= set(equal)}
    model, degree = request.model, group.degree
    if count == 1:
        return "1: no equal device beside it"
    limit = f", of which --tp allows {policy.tensor_parallel}" if policy.tensor_parallel < count else ""
    return (
        f"{degree}: the largest with memory on each device that divides {model.heads} heads, {model.kv_heads} key-value"
        f" heads and the inner size {model.intermediate}; there are {count} equal devices{limit}"
    )


def _dtype(request: Request, group: Group) -> Reason:
    if request.stored and request.model.quantised:
        return Reason("dtype", f"{request.model.format}: the weights are in it already, computed with in {group.dtype}")
    if request.dtype:
        return Reason("dtype", f"{request.dtype}: the {'file has' if request.stored else 'request names'} it")
    if group.dtype == "fp16":
        return Reason("dtype", f"fp16: {group.devices[0].device.name or 'the device'} computes no bf16")
    return Reason("dtype", f"{group.dtype}: the default")


def notes(request: Request, result: Search) -> Iterator[str]:
    """Yield what the plan does not show, and its user should know."""
    yield from _scaled(request)
    if error := serving_refusal(request.model) or packing_refusal(request.model, request.dtype or "bf16"):
        why, *_ = str(error).removeprefix("--model: ").splitlines()
        yield f"Paddock's own engine refuses it: {why}. {_elsewhere(request)}"
    if len(result.chosen) > 1:
        yield "a pipeline over two backends is experimental: one stage waits while the other computes"
        return
    (group,) = result.chosen
    loading = request.model.loading_bytes(group.dtype, group.degree)
    least = min(placed.allowed for placed in group.devices)
    if loading > least:
        yield (
            f"the torch engine takes {mib_up(loading)} MiB on each device while it loads, since the largest weight is"
            f" whole until it is cut or packed; {least // MIB} MiB may be taken"
        )
    if group.backend == "metal":
        yield "macOS lets a process take a part of the memory (recommendedMaxWorkingSize), which is unknown here"
    if group.collective == "ring":
        yield "torch has no all-reduce on Metal: the ring sums on the hosts' processors, which is experimental"
    if len({placed.device.agent for placed in group.devices}) > 1:
        yield "the group spans agents, and each layer waits twice for the network between them"


def _scaled(request: Request) -> Iterator[str]:
    """Yield that the context is beyond what the model was trained on, where its positions are stretched to it."""
    rope = request.model.rope
    if rope.original and rope.factor > 1 and request.context > rope.original:
        yield (
            f"a context of {request.context} tokens is beyond the {rope.original} that the model was trained on first: "
            f"its positions are stretched ({rope.type}, factor {rope.factor:g})"
        )


def _elsewhere(request: Request) -> str:
    """Return what else computes the model."""
    if request.model.facts == "file":
        return "llama.cpp runs the file (bench --engine llama.cpp, or its server with serve.load --url)"
    return "vLLM runs it (serve.load --engine vllm)"
