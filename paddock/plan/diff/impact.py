"""Impact of a change on what runs: nodes that are replaced, jobs that end, labels without a runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paddock.fleet.model.mirror import chart_name
from paddock.labels import POOL
from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import FieldChange, Interruption, Roll, ScaleSetChange
from paddock.plan.diff.replacement import ROLLING, Effect
from paddock.plan.document.model import Fit, Resource
from paddock.plan.engine.resource_types import NODE_GROUP, RELEASE

_CHART = "gha-runner-scale-set"
_RESIZING = frozenset({"minRunners", "maxRunners"})
_SYSTEM = "system"

Resources = Mapping[str, Resource]


@dataclass(slots=True)
class Draft:
    """Effect of the change on one resource, as far as it has been worked out."""

    fields: list[FieldChange]
    effect: Effect | Literal["none"]
    why: list[str]
    roots: frozenset[str] = frozenset()
    """First parts of the fields that change, those that follow another resource among them."""


def rolls(before: Resources, after: Resources, levels: Mapping[str, Draft]) -> tuple[Roll, ...]:
    """Node groups of the old plan that lose their nodes."""
    groups = []
    for urn, group in before.items():
        if group.type != NODE_GROUP:
            continue
        inputs = group.inputs
        kind, why = _roll(urn, inputs, after, levels)
        if kind:
            scaling = inputs.get("scalingConfig")
            nodes = scaling.get("maxSize") if isinstance(scaling, Mapping) else 0
            groups.append(
                Roll(
                    group=clean(group.name),
                    pool=clean(_pool(group)),
                    capacity=clean(str(inputs.get("capacityType", "ON_DEMAND"))),
                    nodes=_count(nodes),
                    kind=kind,
                    why=why,
                )
            )
    return tuple(sorted(groups, key=lambda roll: (roll.pool == _SYSTEM, roll.pool, roll.group)))


def _roll(
    urn: str, inputs: Mapping[str, Any], after: Resources, levels: Mapping[str, Draft]
) -> tuple[Literal["roll", "replace", "remove", "unknown", ""], tuple[str, ...]]:
    if urn not in after:
        return "remove", ("the node group is removed",)
    level = levels[urn]
    if level.effect == "replace":
        return "replace", tuple(level.why)
    new, ignored = after[urn].inputs, after[urn].ignore_changes
    read = [key for key in ("version", "releaseVersion") if key not in ignored]
    why = [f"{key} changes" for key in read if inputs.get(key) != new.get(key)]
    versions = [values.get("launchTemplate") for values in (inputs, new)]
    if versions[0] != versions[1]:
        why.append("launchTemplate.version changes")
    why += [reason for reason in level.why if reason.split(" ", 1)[0] in ROLLING]
    if why:
        return "roll", tuple(why)
    return ("unknown", tuple(level.why)) if level.effect == "unknown" else ("", ())


def _pool(group: Resource) -> str:
    labels = group.inputs.get("labels")
    labels = labels if isinstance(labels, Mapping) else {}
    if isinstance(labels.get(POOL), str):
        return str(labels[POOL])
    return _SYSTEM if labels.get("role") == _SYSTEM else str(group.name)


def interruptions(all_fits: Sequence[Fit], before: Resources, rolled: tuple[Roll, ...]) -> tuple[Interruption, ...]:
    """Jobs that can run on those nodes: of each runner no more than it may have, nor than the nodes hold."""
    interrupted = []
    for release in _scale_sets(before).values():
        runner, values = release.name, _values(release)
        most = _count(values.get("maxRunners"))
        jobs_per_node: dict[str, int] = {}
        for fit in all_fits:
            if fit.runner == runner:
                jobs_per_node[fit.pool] = max(jobs_per_node.get(fit.pool, 0), fit.per_node)
        if _steers_elsewhere(values):
            jobs_per_node[_SYSTEM] = most
        for pool, per_node in jobs_per_node.items():
            pool_rolls = [roll for roll in rolled if roll.pool == clean(pool)]
            jobs = min(most, sum(roll.nodes for roll in pool_rolls) * per_node)
            if pool_rolls and jobs:
                certain = any(roll.kind != "unknown" for roll in pool_rolls)
                interrupted.append(Interruption(clean(runner), jobs, clean(pool), certain))
    return tuple(sorted(_worst(interrupted), key=lambda interruption: interruption.runner))


def _worst(interruptions_: list[Interruption]) -> Iterator[Interruption]:
    """Return one for each runner: a job that is steered from one node and runs on another ends once."""
    by_runner: dict[str, Interruption] = {}
    for interruption in interruptions_:
        worst = by_runner.get(interruption.runner)
        if worst is None or (interruption.certain, interruption.jobs) > (worst.certain, worst.jobs):
            by_runner[interruption.runner] = interruption
    yield from by_runner.values()


def scale_sets(before: Resources, after: Resources, levels: Mapping[str, Draft]) -> tuple[ScaleSetChange, ...]:
    """Scale sets that are added, removed, recreated or restarted."""
    old, new = _scale_sets(before), _scale_sets(after)
    served = [labels(release) for release in new.values()]
    changes = []
    for urn in sorted({*old, *new}):
        if urn not in old:
            new_labels = labels(new[urn])
            changes.append(
                ScaleSetChange(clean(new[urn].name), "add", new_labels, f"jobs may ask for {_bracketed(new_labels)}")
            )
            continue
        old_labels, runner = labels(old[urn]), clean(old[urn].name)
        if urn not in new:
            consequence = f"running jobs may finish; {_unserved(old_labels, served)}"
            changes.append(ScaleSetChange(runner, "remove", old_labels, consequence))
            continue
        level = levels[urn].effect
        if level in ("replace", "unknown"):
            becomes = labels(new[urn])
            # ARC keeps a deleted set until its last job is done, and its name with it.
            consequence = (
                "queued jobs wait for the new one, which waits for jobs that still run: do it while it is idle"
            )
            if becomes != old_labels:
                consequence += f". Its labels become {_bracketed(becomes)}; {_unserved(old_labels, served)}"
            if level == "replace":
                changes.append(ScaleSetChange(runner, "replace", old_labels, consequence))
            else:
                changes.append(ScaleSetChange(runner, "unknown", old_labels, f"if it is replaced, {consequence}"))
        elif level == "update":
            changes.append(_updated(runner, old_labels, old[urn], new[urn]))
    return tuple(changes)


def _updated(runner: str, labels_: tuple[str, ...], old: Resource, new: Resource) -> ScaleSetChange:
    was, becomes = _values(old), _values(new)
    touched = {key for key in {*was, *becomes} if was.get(key) != becomes.get(key)}
    other_inputs_changed = {k: v for k, v in old.inputs.items() if k != "values"} != {
        k: v for k, v in new.inputs.items() if k != "values"
    }
    if touched <= _RESIZING and not other_inputs_changed:
        numbers = (was.get("minRunners"), was.get("maxRunners"), becomes.get("minRunners"), becomes.get("maxRunners"))
        low, high, new_low, new_high = map(_count, numbers)
        return ScaleSetChange(
            runner, "resize", labels_, f"{low} to {high} runners become {new_low} to {new_high}; no job ends"
        )
    return ScaleSetChange(
        runner, "restart", labels_, "its listener starts again and idle runners are recreated; running jobs continue"
    )


def is_scale_set(resource: Resource) -> bool:
    """Return whether this is the Helm release of a runner scale set."""
    chart = resource.inputs.get("chart")
    return resource.type == RELEASE and isinstance(chart, str) and chart_name(chart) == _CHART


def _scale_sets(resources: Resources) -> dict[str, Resource]:
    return {urn: resource for urn, resource in resources.items() if is_scale_set(resource)}


def _values(release: Resource) -> Mapping[str, Any]:
    values = release.inputs.get("values")
    return values if isinstance(values, Mapping) else {}


def labels(release: Resource) -> tuple[str, ...]:
    """Return the labels that jobs request to get a runner of this scale set."""
    values = _values(release).get("scaleSetLabels")
    return tuple(clean(label) for label in values if isinstance(label, str)) if isinstance(values, list) else ()


def _steers_elsewhere(values: Mapping[str, Any]) -> bool:
    mode = values.get("containerMode")
    return isinstance(mode, Mapping) and mode.get("type") == "kubernetes-novolume"


def _unserved(labels_: tuple[str, ...], served: list[tuple[str, ...]]) -> str:
    """Return what happens to workflows that request these labels."""
    if any(set(labels_) <= set(set_labels) for set_labels in served):
        return f"jobs that ask for {_bracketed(labels_)} still find a runner"
    return f"jobs that ask for {_bracketed(labels_)} wait for ever: no scale set has these labels any more"


def _bracketed(labels_: tuple[str, ...]) -> str:
    return f"[{', '.join(labels_)}]"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
