"""Pools and runners with the same content under another key, and what differs only because of their new names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from paddock.plan.diff.fields import clean, decode_base64
from paddock.plan.diff.model import Change, FieldChange, Interruption, Rename, Roll, ScaleSetChange
from paddock.plan.document.model import PlanDocument, Pool, Resource, Runner
from paddock.plan.finding import Finding

Kind = Literal["pool", "runner"]

_COMPONENTS: Mapping[Kind, str] = {"pool": "paddock:infra:GpuPool", "runner": "paddock:infra:RunnerScaleSet"}
_HASH = re.compile(r"\b[0-9a-f]{8,17}\b")
"""The end of an id that the plan makes up from a resource's name."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two keys of what was renamed, and the URNs of its resources under each."""

    kind: Kind
    old: str
    new: str
    urns: frozenset[str]


class Folded(NamedTuple):
    """The renames with what belongs to them, and the rest."""

    renames: tuple[Rename, ...]
    changes: tuple[Change, ...]
    rolls: tuple[Roll, ...]
    interruptions: tuple[Interruption, ...]
    scale_sets: tuple[ScaleSetChange, ...]


class NewNames:
    """Return whether two values are the same but for some names."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._new: dict[str, list[str]] = {}
        for old, new in pairs:
            self._new.setdefault(old, []).append(new)
        longest_first = sorted(self._new, key=len, reverse=True)
        self._old = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])")

    def same_text(self, old: str, new: str) -> bool:
        """Return whether each place that differs is an old name that became its new one."""
        if old == new:
            return True
        if not self._new:
            return False
        parts = [
            "|".join(map(re.escape, (part, *self._new[part]))) if index % 2 else re.escape(part)
            for index, part in enumerate(self._old.split(old))
        ]
        return re.fullmatch("".join(f"(?:{part})" for part in parts), new) is not None

    def same(self, old: Any, new: Any, *, computed: bool = False) -> bool:
        """Return whether two values are. `computed`: made from other resources, whose made-up ids hash their names."""
        match old, new:
            case str(), str():
                before, after = decode_base64(old) or old, decode_base64(new) or new
                if computed:
                    before, after = _HASH.sub("#", before), _HASH.sub("#", after)
                return self.same_text(before, after)
            case Mapping(), Mapping():
                if len(old) != len(new):
                    return False
                renamed = ((key, self._renamed_key(key, new)) for key in old)
                return all(
                    becomes is not None and self.same(old[key], new[becomes], computed=computed)
                    for key, becomes in renamed
                )
            case list(), list():
                return len(old) == len(new) and all(
                    self.same(a, b, computed=computed) for a, b in zip(old, new, strict=True)
                )
            case _:
                return bool(old == new)

    def _renamed_key(self, key: str, new: Mapping[str, Any]) -> str | None:
        return key if key in new else next((other for other in new if self.same_text(key, other)), None)

    def beyond(self, changes: Sequence[FieldChange]) -> Iterator[FieldChange]:
        """Yield the changed fields that are more than names."""
        added = [change for change in changes if change.old is None]
        for change in changes:
            if change.old is None:
                continue
            if change.new is not None:
                if not self.same_text(change.old, change.new):
                    yield change
                continue
            becomes = next(
                (
                    other
                    for other in added
                    if self.same_text(change.path, other.path) and self.same_text(change.old, other.new or "")
                ),
                None,
            )
            if becomes is None:
                yield change
            else:
                added.remove(becomes)
        yield from added


def find(old: PlanDocument, new: PlanDocument) -> tuple[Pair, ...]:
    """Return the pools and runners of the old plan that the new one has under another key."""
    before, after = _Tree(old.resources), _Tree(new.resources)
    pools = [*_pairs("pool", old.pools, new.pools, before, after, ())]
    return (*pools, *_pairs("runner", old.runners, new.runners, before, after, pools))


def keys(pairs: Sequence[Pair], kind: Kind) -> dict[str, str]:
    """Return the new keys of the renamed pools or runners, by the old ones."""
    return {pair.old: pair.new for pair in pairs if pair.kind == kind}


def _pairs(
    kind: Kind,
    old: Sequence[Pool | Runner],
    new: Sequence[Pool | Runner],
    before: _Tree,
    after: _Tree,
    known: Sequence[Pair],
) -> Iterator[Pair]:
    kept = {entry.name for entry in old} & {entry.name for entry in new}
    added = [entry for entry in new if entry.name not in kept]
    for entry in old:
        if entry.name in kept:
            continue
        for other in added:
            names = NewNames([*((pair.old, pair.new) for pair in known), (entry.name, other.name)])
            if names.same(entry.data(), other.data()) and (
                urns := _same_resources(
                    before.below(_COMPONENTS[kind], entry.name),
                    after.below(_COMPONENTS[kind], other.name),
                    entry.name,
                    other.name,
                    names,
                )
            ):
                added.remove(other)
                yield Pair(kind, entry.name, other.name, urns)
                break


class _Tree:
    """Resources by the component that holds them."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._components = {(resource.type, resource.name): resource for resource in resources}
        self._children: dict[str, list[Resource]] = {}
        for resource in resources:
            self._children.setdefault(resource.parent, []).append(resource)

    def below(self, type_: str, name: str) -> list[Resource]:
        """Return all that a component holds, at any depth."""
        component = self._components.get((type_, name))
        level, below = [component] if component else [], []
        while level:
            level = [child for resource in level for child in self._children.get(resource.urn, ())]
            below += level
        return below


def _same_resources(
    before: Sequence[Resource], after: Sequence[Resource], old: str, new: str, names: NewNames
) -> frozenset[str]:
    """Return the URNs of both where they are the same resources under other names; empty where they are not."""
    renamed = {(resource.type, resource.name): resource for resource in after}
    for resource in before:
        name = new + resource.name.removeprefix(old) if resource.name.startswith(old) else resource.name
        other = renamed.get((resource.type, name))
        if other is None or resource.protect != other.protect or resource.inputs.keys() != other.inputs.keys():
            return frozenset()
        for key, value in resource.inputs.items():
            if not names.same(value, other.inputs[key], computed=key in resource.property_dependencies):
                return frozenset()
    same_size = len(before) == len(after)
    return frozenset(resource.urn for resource in (*before, *after)) if same_size else frozenset()


def fold(
    pairs: Sequence[Pair],
    changes: Sequence[Change],
    rolls: Sequence[Roll],
    interruptions: Sequence[Interruption],
    scale_sets: Sequence[ScaleSetChange],
) -> Folded:
    """Gather into each rename what differs only because of it."""
    rest = Folded((), tuple(changes), tuple(rolls), tuple(interruptions), tuple(scale_sets))
    for pair in pairs:
        names = NewNames([(pair.old, pair.new)])
        own = [change for change in rest.changes if change.urn in pair.urns or _names_only(change, names)]
        own_urns = {change.urn for change in own}
        restarted = {change.name for change in own if change.action == "change"}
        is_pool = pair.kind == "pool"
        own_rolls = [roll for roll in rest.rolls if is_pool and roll.pool == pair.old]
        own_interruptions = [end for end in rest.interruptions if is_pool and end.pool == pair.old]
        own_sets = [
            scale_set
            for scale_set in rest.scale_sets
            if (not is_pool and scale_set.runner in (pair.old, pair.new) and scale_set.kind in ("add", "remove"))
            or (scale_set.kind == "restart" and scale_set.runner in restarted)
        ]
        rename = Rename(
            kind=pair.kind,
            old=clean(pair.old),
            new=clean(pair.new),
            consequences=tuple(_consequences(own_rolls, own_interruptions, own_sets)),
            changes=tuple(own),
            rolls=tuple(own_rolls),
            interruptions=tuple(own_interruptions),
            scale_sets=tuple(own_sets),
        )
        rest = Folded(
            (*rest.renames, rename),
            tuple(change for change in rest.changes if change.urn not in own_urns),
            tuple(roll for roll in rest.rolls if roll not in own_rolls),
            tuple(end for end in rest.interruptions if end not in own_interruptions),
            tuple(scale_set for scale_set in rest.scale_sets if scale_set not in own_sets),
        )
    return rest


def _names_only(change: Change, names: NewNames) -> bool:
    """Return whether a resource next to a renamed one is updated in place, and only to say the new name."""
    if change.action != "change" or change.replaced != "update" or not change.fields:
        return False
    return not any(names.beyond(change.fields))


def _consequences(
    rolls: Sequence[Roll], interruptions: Sequence[Interruption], scale_sets: Sequence[ScaleSetChange]
) -> Iterator[str]:
    nodes = sum(roll.nodes for roll in rolls)
    if rolls:
        groups = "its node group is" if len(rolls) == 1 else f"its {len(rolls)} node groups are"
        yield f"{groups} recreated, and the nodes of the old, at most {nodes}, are drained and removed"
    for end in interruptions:
        yield f"at most {end.jobs} running jobs of {end.runner} end"
    restarted = [scale_set.runner for scale_set in scale_sets if scale_set.kind == "restart"]
    if restarted:
        yield f"the listener of {', '.join(restarted)} starts again"
    for scale_set in scale_sets:
        if scale_set.kind == "remove":
            yield f"its scale set is removed: {scale_set.says}"
        elif scale_set.kind == "add":
            yield f"a new scale set is registered: {scale_set.says}"


def beyond_findings(
    fixed: Sequence[Finding], appeared: Sequence[Finding], names: NewNames
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that are fixed and new, without those that only name a part by its new key."""
    added, removed = list(appeared), []
    for finding in fixed:
        same = next(
            (
                other
                for other in added
                if (finding.id, finding.severity) == (other.id, other.severity)
                and names.same_text(finding.subject, other.subject)
            ),
            None,
        )
        if same is None:
            removed.append(finding)
        else:
            added.remove(same)
    return tuple(removed), tuple(added)
