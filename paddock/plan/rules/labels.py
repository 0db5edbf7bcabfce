"""Labels of scale sets: which runner GitHub may give a job to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paddock.fleet import Fleet
from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Edit, Severity, put
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.placement import GPU
from paddock.plan.rules.inputs.pods import name_of, pods, scale_sets

GENERIC = frozenset(("self-hosted", "linux", "windows", "macos", "x64", "arm", "arm64"))
"""Labels that GitHub gives runners by itself: they tell no GPU from another."""
_SIZES = {GPU: "GPU", "cpu": "CPU", "memory": "memory"}
_MOST_NAMED = 4
"""Runners that a message names."""


@dataclass(frozen=True, eq=False, slots=True)
class _ScaleSet:
    """A scale set, and what a job gets from it."""

    release: Resource
    name: str
    labels: frozenset[str]
    """As written. The name is a label too."""
    node: str
    size: str

    def __str__(self) -> str:
        return f"{self.name} ({self.node}: {self.size})"


class LabelOverlap(Rule):
    id = "CON012"
    severity: ClassVar[Severity] = "warning"
    title = "A label leads to runners of one size on one pool"
    why = (
        "GitHub gives a job to any set whose labels contain the job's: a job of one GPU that asks for a label which"
        " runners share may take a node of eight."
    )
    fix = "runners.<name>.labels: take the shared label from all runners but the one that such jobs are for"

    def check(self, context: Context) -> Iterator[Violation]:
        job_pods = {name_of(pod.resource): pod.spec for pod in pods(context) if pod.kind == "job"}
        groups: dict[tuple[str, str], list[_ScaleSet]] = {}
        for release in scale_sets(context):
            values = fields.get(release.inputs, "values")
            group = fields.text(values, "githubConfigUrl"), (fields.text(values, "runnerGroup") or "default").lower()
            if scale_set := _scale_set(release, job_pods):
                groups.setdefault(group, []).append(scale_set)
        for sets in groups.values():
            for takers, request in _ambiguous(sets).items():
                # A fleet with equal labels or equal names is refused before it is planned.
                if all(len({getattr(taker, key) for taker in takers}) > 1 for key in ("labels", "name")):
                    yield from self._violations(context, takers, request)

    @staticmethod
    def _violations(context: Context, takers: tuple[_ScaleSet, ...], request: frozenset[str]) -> Iterator[Violation]:
        if len({(taker.node, taker.size) for taker in takers}) == 1:
            return
        owner = next((taker for taker in takers if taker.name.lower() in request), takers[0])
        others = [taker for taker in takers if taker is not owner]
        listed = ", ".join(map(str, others[:_MOST_NAMED]))
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        labels = ", ".join(sorted(request))
        message = f"a job that asks for [{labels}] goes to {owner} or to {listed}{more}"
        edits = tuple(_without(context, taker, request) for taker in others)
        fix = " and ".join(map(str, edits[:_MOST_NAMED])) + (
            f" and so on for {len(edits) - _MOST_NAMED} more" if more else ""
        )
        is_clear = context.fleet is not None and _may_lose(context.fleet, owner, others, request)
        yield violation(others[0].release, message, fix=fix, edits=edits if is_clear else ())


def _may_lose(fleet: Fleet, owner: _ScaleSet, others: list[_ScaleSet], request: frozenset[str]) -> bool:
    """Return whether the labels are plainly the owner's, and the others have enough of their own without them."""
    taken = {frozenset(map(str.lower, runner.effective_labels)) for runner in fleet.runners.values()}
    return owner.name.lower() in request and all(
        # A name is a label that nobody can take away; GitHub's own labels alone ask for everybody's jobs.
        other.name.lower() not in request and other.labels - request - GENERIC and other.labels - request not in taken
        for other in others
    )


def _without(context: Context, taker: _ScaleSet, request: frozenset[str]) -> Edit:
    """Return the edit that takes labels from a runner; the others stay as they are written."""
    runner = context.fleet.runners.get(taker.release.name) if context.fleet else None
    labels = runner.effective_labels if runner else sorted(taker.labels)
    kept = [label for label in labels if label.lower() not in request]
    return put("runners", taker.release.name, "labels", value=kept)


def _scale_set(release: Resource, job_pods: Mapping[str, Mapping[str, Any]]) -> _ScaleSet | None:
    """Return what a job gets from a scale set; None where it is not known yet."""
    values = fields.get(release.inputs, "values")
    name = fields.text(values, "runnerScaleSetName") or fields.text(release.inputs, "name")
    spec = fields.get(values, "template", "spec")
    for volume in fields.items(spec, "volumes"):
        # In kubernetes modes the runner's own pod has no GPU: the pod of the job has it.
        spec = job_pods.get(fields.text(volume, "configMap", "name"), spec)
    labels, node = fields.items(values, "scaleSetLabels"), fields.mapping(spec, "nodeSelector")
    requests = fields.mapping(spec, "containers", 0, "resources", "requests")
    if not name or any(map(fields.has_unknown, (labels, node, requests))):
        return None
    size = [f"{requests[key]} {word}" for key, word in _SIZES.items() if key in requests]
    return _ScaleSet(
        release,
        name,
        frozenset(str(label).lower() for label in labels),
        ", ".join(map(str, node.values())) or "any node",
        ", ".join(size) or "no requests",
    )


def _ambiguous(sets: list[_ScaleSet]) -> dict[tuple[_ScaleSet, ...], frozenset[str]]:
    """Return the scale sets that the same request may go to, with the labels that all of them answer to."""
    takers: dict[frozenset[str], list[_ScaleSet]] = {}
    for scale_set in sets:
        for label in (scale_set.labels | {scale_set.name.lower()}) - GENERIC:
            takers.setdefault(frozenset((label,)), []).append(scale_set)
        if scale_set.labels and scale_set.labels <= GENERIC and scale_set.labels not in takers:
            takers[scale_set.labels] = [other for other in sets if scale_set.labels <= other.labels]
    merged: dict[tuple[_ScaleSet, ...], frozenset[str]] = {}
    for request, found in takers.items():
        if len(found) > 1:
            merged[tuple(found)] = merged.get(tuple(found), frozenset()) | request
    return merged


RULES = (LabelOverlap(),)
