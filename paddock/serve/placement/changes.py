"""Changes after which a model fits, the smallest first: less work, packed weights, another backend, more devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from paddock.models.model import FILE_BITS
from paddock.serve.placement.device import Device
from paddock.serve.placement.engines import CONVERT, PACKED, RANDOM_DTYPE, engine_of, refusal
from paddock.serve.placement.plan import Change
from paddock.serve.placement.request import MOST_DEVICES, Policy, Request
from paddock.serve.placement.search import degrees, fits, group_of

_LEAST_CONTEXT = 128
_AS_IT_LOADS = ("fp8", "bitsandbytes")
"""Of `paddock.serve.placement.engines.QUANTISATIONS`, those that are proposed."""


def changes(request: Request, devices: Sequence[Device], policy: Policy) -> tuple[Change, ...]:
    """Return single changes that help; where none does, int4 with the least work it needs."""
    free = [device for device in devices if not device.unavailable]
    available = [device for device in free if not refusal(replace(request, dtype=None), device, policy)]
    if not available:
        return tuple(_other_engine(request, free, policy))
    single = tuple(_single(request, available, policy))
    return single or tuple(_together(request, available, policy))


def _single(request: Request, devices: Sequence[Device], policy: Policy) -> Iterator[Change]:
    lacked = request.dtype and all(request.dtype in device.lacks for device in devices)
    if lacked and fits(replace(request, dtype="fp16"), devices, policy):
        yield Change("fp16 weights, which these devices compute", "--dtype fp16")
    if count := _most_requests(request, devices, policy):
        yield Change(f"{_count(count, 'request')} at once instead of {request.concurrency}", f"--concurrency {count}")
    if context := _longest_context(request, devices, policy):
        yield Change(f"a context of {context} tokens instead of {request.context}", f"--context {context}")
    for dtype in smaller(request, policy):
        if fits(replace(request, dtype=dtype), devices, policy):
            yield Change(f"{dtype} weights", f"--dtype {dtype}")
    vllm = engine_of(request.model, policy) == "vllm"
    for name in () if request.model.quantised or policy.quantization or not vllm else _AS_IT_LOADS:
        if fits(request, devices, replace(policy, quantization=name)):
            yield Change(f"{name} weights, which vLLM packs as it loads", f"--quantization {name}")
    if policy.tensor_parallel < MOST_DEVICES and fits(request, devices, replace(policy, tensor_parallel=MOST_DEVICES)):
        yield Change("tensor parallelism over more devices", "without --tp")
    if vllm and not policy.across_agents and fits(request, devices, replace(policy, across_agents=True)):
        yield Change("tensor parallelism across agents, at the speed of the network", "--across-agents")
    if policy.backend is not None and fits(request, devices, replace(policy, backend=None)):
        yield Change("a backend of its own choice", f"without --backend {policy.backend}")
    elif policy.backend is None and fits(request, devices, replace(policy, backend="cpu")):
        yield Change("the CPU, which is many times slower", "--backend cpu")
    yield from _more_devices(request, devices, policy)


def _together(request: Request, devices: Sequence[Device], policy: Policy) -> Iterator[Change]:
    for dtype in smaller(request, policy):
        packed = replace(request, dtype=dtype)
        if count := _most_requests(packed, devices, policy):
            text, flags = f"{_count(count, 'request')} at once", f"--concurrency {count}"
        elif context := _longest_context(replace(packed, concurrency=1), devices, policy):
            text, flags = f"1 request of {context} tokens", f"--concurrency 1 --context {context}"
        else:
            continue
        yield Change(f"{dtype} weights and {text}", f"--dtype {dtype} {flags}")
        return


def smaller(request: Request, policy: Policy) -> tuple[str, ...]:
    """Return the formats with fewer bits in which llama.cpp's weights can be: those of 16 bits, and random ones."""
    if engine_of(request.model, policy) == "vllm" or request.model.quantised:
        return ()
    own = request.dtype or (request.model.format if request.model.facts == "file" else RANDOM_DTYPE)
    return tuple(dtype for dtype in PACKED if FILE_BITS[dtype] < FILE_BITS.get(own, 16))


def _other_engine(request: Request, free: Sequence[Device], policy: Policy) -> Iterator[Change]:
    """Yield what makes the model one for the devices that are there, where its engine computes on none of them."""
    if not free:
        return
    if engine_of(request.model, policy) == "vllm":
        yield Change(f"the model as a .gguf file, which llama.cpp computes here: {CONVERT}")
    elif not policy.server:
        yield Change("a llama-server that is built for these devices", "--server PATH")


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
    for dtype in (request.dtype, *smaller(request, policy)):
        variant = replace(request, dtype=dtype)
        for degree in reversed(degrees(request, min(MOST_DEVICES, policy.tensor_parallel), policy)):
            if refusal(variant, device, policy) or group_of(variant, [device] * degree, policy).lacking:
                continue
            if degree > 1 and (device.backend != "metal" or engine_of(request.model, policy) == "vllm"):
                yield _devices(degree, device, policy, "" if dtype == request.dtype else str(dtype))
            return


def _devices(degree: int, device: Device, policy: Policy, dtype: str) -> Change:
    """Return the change to so many devices."""
    place = "on as many agents" if policy.across_agents else "on one agent"
    weights = f" and {dtype} weights" if dtype else ""
    free = f"{(device.free_mib or 0) / 1024:.1f} GiB free"
    return Change(f"{degree} {device.name} {place}, each with {free}{weights}", f"--dtype {dtype}" if dtype else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
