"""A plan in lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from paddock.console.table import table
from paddock.models.model import Model, billions
from paddock.serve.agents.diagnosis import Link, broken
from paddock.serve.placement.engines import weights_in_words
from paddock.serve.placement.memory import MIB
from paddock.serve.placement.plan import Group, Infeasible, ModelPlacement, Unused, mib_up
from paddock.serve.placement.request import Policy, Request

_HEADINGS = ("device", "model", "weights", "cache", "activations", "needs", "may take", "of")
_NAMES = 2
"""Columns of names, before those of numbers."""


def lines(result: ModelPlacement | Infeasible, chains: Mapping[str, tuple[Link, ...]]) -> Iterator[str]:
    """Yield the result for a terminal, with the broken links of the agents."""
    yield from _request(result.request, result.policy)
    if isinstance(result, ModelPlacement):
        yield from _plan(result)
    else:
        yield from _infeasible(result)
    yield from _broken(chains)


def _request(request: Request, policy: Policy) -> Iterator[str]:
    model = request.model
    active = f", {billions(model.active_parameters)} of them for each token" if model.experts else ""
    experts = f", {model.experts} experts of which {model.experts_active} compute" if model.experts else ""
    heads = f"{model.heads} heads" + f", {model.kv_heads} key-value heads" * bool(model.kv_heads)
    parameters = f"{billions(model.parameters)} parameters{active}"
    yield f"Model      {model.name}: {parameters}; {model.layer_kinds}; {heads}{experts}"
    size = f"{model.bytes / 2**30:.1f} GiB" if model.bytes >= 2**30 else f"{mib_up(model.bytes)} MiB"
    yield f"Weights    {size} in {model.format}, {_counted(model)}"
    yield from (f"note: {note}" for note in model.notes)
    requests = f"{request.concurrency} request{'' if request.concurrency == 1 else 's'} at once"
    yield f"Request    {weights_in_words(request, policy)} weights, {requests}, {request.context} tokens each"


def _counted(model: Model) -> str:
    """Return in words what gave the number of parameters and their bytes."""
    if model.source == "file":
        return "by the file's own table" if model.files == 1 else f"by the tables of {model.files} files"
    counted = "by formula" if model.source == "formula" else f"counted by {model.source}"
    return f"{counted} from {model.facts}"


def _plan(plan: ModelPlacement) -> Iterator[str]:
    yield f"Plan       {plan.kind}: {plan.policy.engine}, {'; '.join(map(_group, plan.groups))}"
    yield ""
    yield from _table(plan.groups)
    yield ""
    width = max(len(reason.choice) for reason in plan.reasons)
    yield from (f"{reason.choice:<{width}}  {reason.text}" for reason in plan.reasons)
    yield from _left("Unused", plan.unused)
    yield from (f"note: {note}" for note in plan.notes)


def _group(group: Group) -> str:
    if group.degree == 1:
        return f"{group.dtype} on one device"
    return f"{group.dtype}, tensor parallel over {group.degree} devices"


def _infeasible(result: Infeasible) -> Iterator[str]:
    yield f"Plan       none: {'; '.join(reason.text for reason in result.reasons)}"
    if result.attempts:
        yield ""
        yield from _table(result.attempts)
        yield ""
        for group in result.attempts:
            for placed in group.devices:
                if placed.lacking:
                    yield f"{placed.device.label} lacks {mib_up(placed.lacking)} MiB"
    yield from _left("Not tried", result.refused)
    if result.attempts and not result.changes:
        yield "fix: a smaller model, or devices with more memory"
    for number, change in enumerate(result.changes):
        flags = f" ({change.flags})" if change.flags else ""
        yield f"{'fix:' if number == 0 else '  or'} {change.text}{flags}"


def _table(groups: Sequence[Group]) -> Iterator[str]:
    rows = []
    for group in groups:
        for placed in group.devices:
            device, memory = placed.device, placed.memory
            parts = (memory.weights, memory.cache, memory.activations, memory.needed)
            total = "unknown" if device.memory_mib is None else f"{device.memory_mib} MiB"
            needs = (f"{mib_up(part)} MiB" for part in parts)
            rows.append((device.label, device.name or "unknown", *needs, f"{placed.allowed // MIB} MiB", total))
    yield from table(_HEADINGS, rows, right=_HEADINGS[_NAMES:], drop=("cache", "activations", "weights", "of"))


def _left(heading: str, unused: Iterable[Unused]) -> Iterator[str]:
    entries = list(unused)
    if not entries:
        return
    yield ""
    yield heading
    width = max(len(entry.device.label) for entry in entries)
    for entry in entries:
        yield f"  {entry.device.label:<{width}}  {entry.reason}"
        if entry.suggestion:
            yield f"  {'':<{width}}  {entry.suggestion}"


def _broken(chains: Mapping[str, tuple[Link, ...]]) -> Iterator[str]:
    for agent, chain in chains.items():
        if link := broken(chain):
            yield ""
            yield f"{agent}, {link.name}: {link.evidence}"
            if link.fix:
                yield f"  fix: {link.fix}"
