"""Changes after which a model fits, the smallest first: less work, packed weights, another backend, more devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from paddock.models.model import BITS
from paddock.serve.placement.device import Device
from paddock.serve.placement.plan import Change
from paddock.serve.placement.request import MOST_DEVICES, Policy, Request
from paddock.serve.placement.search import degrees, fits, group_of

_PACKED = ("int8", "int4")
_EVERYWHERE = ("fp16", "int8")
"""Formats that every device computes."""
_LEAST_CONTEXT = 128


def changes(request: Request, devices: Sequence[Device], policy: Policy) -> tuple[Change, ...]:
    """Return single changes that help; where none does, int4 with the least work it needs."""
    available = [device for device in devices if not device.unavailable]
    if not available:
        return ()
    single = tuple(_single(request, available, policy))
    return single or tuple(_together(request, available, policy))


def _single(request: Request, devices: Sequence[Device], policy: Policy) -> Iterator[Change]:
    if request.dtype and not request.stored and any(request.dtype in device.lacks for device in devices):
        for dtype in sorted(_EVERYWHERE, key=lambda dtype: abs(BITS[dtype] - BITS[request.dtype or dtype])):
            if fits(replace(request, dtype=dtype), devices, policy):
                yield Change(f"{dtype} weights, which these devices compute", f"--dtype {dtype}")
                break
    if count := _most_requests(request, devices, policy):
        yield Change(f"{_count(count, 'request')} at once instead of {request.concurrency}", f"--concurrency {count}")
    if context := _longest_context(request, devices, policy):
        yield Change(f"a context of {context} tokens instead of {request.context}", f"--context {context}")
    for dtype in _smaller(request):
        if fits(replace(request, dtype=dtype), devices, policy):
            yield Change(f"{dtype} weights", f"--dtype {dtype}")
    if policy.tensor_parallel < MOST_DEVICES and fits(request, devices, _wide(policy)):
        yield Change("tensor parallelism over more devices", "without --tp")
    if not policy.across_agents and fits(request, devices, replace(policy, across_agents=True)):
        yield Change("tensor parallelism across agents, at the speed of the network", "--across-agents")
    if policy.backend is not None and fits(request, devices, replace(policy, backend=None)):
        yield Change("a backend of its own choice", f"without --backend {policy.backend}")
    elif policy.backend is None and fits(request, devices, replace(policy, backend="cpu")):
        yield Change("the processor, which is many times slower", "--backend cpu")
    if policy.backend is None and not policy.pipeline and fits(request, devices, replace(policy, pipeline=True)):
        yield Change("two stages on two backends, which is experimental", "--pipeline")
    yield from _more_devices(request, devices, policy)


def _together(request: Request, devices: Sequence[Device], policy: Policy) -> Iterator[Change]:
    for dtype in _smaller(request):
        packed = replace(request, dtype=dtype)
        if count := _most_requests(packed, devices, policy):
            yield Change(
                f"{dtype} weights and {_count(count, 'request')} at once", f"--dtype {dtype} --concurrency {count}"
            )
            return
        alone = replace(packed, concurrency=1)
        if context := _longest_context(alone, devices, policy):
            yield Change(
                f"{dtype} weights, and 1 request of {context} tokens",
                f"--dtype {dtype} --concurrency 1 --context {context}",
            )
            return


def _smaller(request: Request) -> Iterator[str]:
    bits = BITS[request.dtype or "bf16"]
    return (dtype for dtype in _PACKED if BITS[dtype] < bits and not request.stored and not request.model.experts)


def _wide(policy: Policy) -> Policy:
    return replace(policy, tensor_parallel=MOST_DEVICES)


def _most_requests(request: Request, devices: Sequence[Device], policy: Policy) -> int:
    """Return the largest concurrency below the request's that fits; 0 for none."""
    return _largest(lambda count: fits(replace(request, concurrency=count), devices, policy), request.concurrency - 1)


def _longest_context(request: Request, devices: Sequence[Device], policy: Policy) -> int:
    """Return the longest context below the request's that fits, in steps of 64 tokens; 0 for none worth having."""
    steps = _largest(
        lambda count: fits(replace(request, context=64 * count), devices, policy), (request.context - 1) // 64
    )
    return 64 * steps if 64 * steps >= _LEAST_CONTEXT else 0


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number from 1 to `most` for which it holds, where it holds for all smaller ones; else 0."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _more_devices(request: Request, devices: Sequence[Device], policy: Policy) -> Iterator[Change]:
    """Yield for each model of device how many it takes, with as much free memory as the roomiest has."""
    roomiest: dict[str, Device] = {}
    for device in devices:
        best = roomiest.get(device.name or "")
        if best is None or device.allowed(policy.reserve) > best.allowed(policy.reserve):
            roomiest[device.name or ""] = device
    for name, device in sorted(roomiest.items()):
        if name and device.backend != "cpu" and device.part is None and policy.backend in (None, device.backend):
            yield from _of_one_model(request, device, policy)


def _of_one_model(request: Request, device: Device, policy: Policy) -> Iterator[Change]:
    for dtype in (request.dtype, *_smaller(request)):
        variant = replace(request, dtype=dtype)
        for degree in reversed(degrees(request.model, min(MOST_DEVICES, policy.tensor_parallel))):
            if dtype in device.lacks or group_of(variant, [device] * degree, policy).lacking:
                continue
            if degree > 1:
                yield _devices(degree, device, policy, "" if dtype == request.dtype else str(dtype))
            return


def _devices(degree: int, device: Device, policy: Policy, dtype: str) -> Change:
    """Return the change to so many devices. A Mac has one, so that several are several agents."""
    apart = device.backend == "metal" or policy.across_agents
    flags = [f"--dtype {dtype}"] if dtype else []
    flags += ["--across-agents"] if apart and not policy.across_agents else []
    place = "on as many agents" if apart else "on one agent"
    weights = f" and {dtype} weights" if dtype else ""
    free = f"{(device.free_mib or 0) / 1024:.1f} GiB free"
    return Change(f"{degree} {device.name} {place}, each with {free}{weights}", " ".join(flags))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
