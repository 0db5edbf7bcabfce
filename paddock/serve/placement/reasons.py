"""Reasons in words for each choice of a plan, and notes on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paddock.models.model import PLAIN
from paddock.models.presets import FACTS
from paddock.serve.placement.device import BACKENDS, Device
from paddock.serve.placement.engines import engine_of, packs, refusal, why_engine
from paddock.serve.placement.plan import Group, Infeasible, Reason, mib_up
from paddock.serve.placement.request import Policy, Request
from paddock.serve.placement.search import Search, bandwidth, equal_sets

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
    if all(refusal(request, device, policy) for device in available):
        return f"{engine_of(request.model, policy)} computes on none of them: {_there(available)}"
    if policy.backend:
        return f"the model does not fit on {policy.backend}: {_there(available)}"
    return f"no backend holds the model: {_there(available)}"


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
    available = [device for device in devices if not refusal(request, device, policy)]
    if (group := result.chosen) is None:
        return
    yield Reason("class", f"every device of the plan is {group.backend}")
    yield Reason("engine", why_engine(request.model, policy))
    yield Reason("backend", _why_backend(group, available, policy, result))
    yield Reason("devices", _why_devices(group, result))
    yield Reason("degree", _why_degree(request, group, available, policy))
    yield _dtype(request, group, policy)


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


def _why_devices(group: Group, result: Search) -> str:
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
    (count,) = {len(equal) for equal in equal_sets(request, available, policy) if devices <= set(equal)}
    model, degree = request.model, group.degree
    if count == 1:
        return "1: no other device is equal to it"
    limit = f", of which --tp allows {policy.tensor_parallel}" if policy.tensor_parallel < count else ""
    if engine_of(model, policy) == "llama.cpp":
        return (
            f"{degree}: the largest with memory on each device (--split-mode row); there are {count} equal ones{limit}"
        )
    return (
        f"{degree}: the largest with memory on each device that divides {model.heads} heads, {model.kv_heads} key-value"
        f" heads and the inner size {model.intermediate}; there are {count} equal devices{limit}"
    )


def _dtype(request: Request, group: Group, policy: Policy) -> Reason:
    model = request.model
    if policy.quantization:
        return Reason("dtype", f"{policy.quantization}: vLLM quantises the weights as it loads them")
    if request.dtype:
        return Reason("dtype", f"{request.dtype}: the request names it")
    if engine_of(model, policy) == "llama.cpp":
        why = "the file has it" if model.facts == "file" else "the default of random weights"
        return Reason("dtype", f"{group.dtype}: {why}")
    if model.quantised:
        return Reason("dtype", f"{model.format}: the weights are in it already, computed with in {group.dtype}")
    if group.dtype == "fp16" and "bf16" in group.devices[0].device.lacks:
        return Reason("dtype", f"fp16: {group.devices[0].device.name or 'the device'} has no bf16")
    return Reason("dtype", f"{group.dtype}: the checkpoint's")


def notes(request: Request, policy: Policy, group: Group) -> Iterator[str]:
    """Yield what the plan does not show, and its user should know."""
    yield from _scaled(request)
    yield from _of_files(request)
    if packs(request):
        size = mib_up(request.model.file_bytes(request.dtype or ""))
        yield f"the weights are packed in {request.dtype} once, on the machine that serves them: {size} MiB of its disk"
    if policy.engine == "vllm":
        part = min(placed.part for placed in group.devices)
        yield f"vLLM takes {part:.0%} of each device for itself, whatever the model needs: more cache"
    elif group.backend == "cpu" and group.dtype not in PLAIN:
        yield "llama.cpp may keep weights of 4 and 8 bits a second time, in the order in which CPUs read them"
    if group.backend == "metal":
        yield "macOS lets a process take a part of the memory (recommendedMaxWorkingSize), which is unknown here"
    if len({placed.device.agent for placed in group.devices}) > 1:
        yield "the group spans agents, and each layer waits twice for the network between them"


def _of_files(request: Request) -> Iterator[str]:
    """Yield what is not known to be right of the model's files: the engine judges."""
    model = request.model
    if model.facts == FACTS:
        yield "the weights are random numbers in the model's shape: what it says means nothing"
    if model.template is False:
        yield "its files have no chat template: the engine takes one of its own for /v1/chat/completions, or refuses"


def _scaled(request: Request) -> Iterator[str]:
    """Yield that the context is beyond what the model was trained on, where its positions are stretched to it."""
    rope = request.model.rope
    if rope.original and rope.factor > 1 and request.context > rope.original:
        yield (
            f"a context of {request.context} tokens is beyond the {rope.original} that the model was trained on first: "
            f"its positions are stretched ({rope.type}, factor {rope.factor:g})"
        )
