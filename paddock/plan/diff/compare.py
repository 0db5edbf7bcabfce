"""Comparison of two plans of a stack: changes, their effect on running jobs, and notes for a reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from paddock.plan.diff import fields, impact
from paddock.plan.diff.changes import STACK, Draft, drafts, label
from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import Action, Change, CostChange, Diff, FieldChange, FitChange, Verdict
from paddock.plan.diff.replacement import AWS_PROVIDER, Effect
from paddock.plan.document.model import PlanDocument, Resource
from paddock.plan.engine.resource_types import CLUSTER, SUBNET
from paddock.plan.finding import Finding, current_id

Resources = Mapping[str, Resource]


def compare(old: PlanDocument, new: PlanDocument) -> Diff:
    """Return the difference of two plans."""
    before, after = _resources(old), _resources(new)
    drafts_by_urn = drafts(before, after)
    changes = [*_removed(before, after), *_changed(before, after, drafts_by_urn), *_added(before, after)]
    changes.sort(key=lambda change: (_risk(change), change.follows, change.owner, change.type, change.name))
    levels: dict[str, impact.Level] = {
        urn: impact.Level(draft.effect, tuple(draft.why), draft.roots) for urn, draft in drafts_by_urn.items()
    }
    rolls = impact.rolls(before, after, levels)
    fixed, appeared = _findings(old, new)
    cost = CostChange(_month(old), _month(new), _fixed_cost(old), _fixed_cost(new))
    diff = Diff(
        verdict="none",
        stack=clean(new.stack),
        project=clean(new.project),
        changes=tuple(changes),
        refused=tuple(_refused(changes, before, after, drafts_by_urn)),
        rolls=rolls,
        interruptions=impact.interruptions(old.fit, before, rolls),
        scale_sets=impact.scale_sets(before, after, levels),
        new_findings=appeared,
        fixed_findings=fixed,
        fits=tuple(_fits(old, new)),
        cost=cost,
        outputs=fields.compare(old.outputs, new.outputs),
        notes=tuple(_notes(changes, old, new)),
    )
    return diff.model_copy(update={"verdict": _verdict(diff)})


def _verdict(diff: Diff) -> Verdict:
    if diff.refused:
        return "refused"
    if diff.count("replace") or diff.count("remove") or diff.unsure:
        return "replaces"
    if diff.rolls or diff.interruptions:
        return "interrupts"
    return "none" if diff.empty else "safe"


def _month(document: PlanDocument) -> tuple[float, float] | None:
    """Return the range that a stack costs a month, or None where its plan does not say."""
    low, high = (document.cost.month.low.value, document.cost.month.high.value) if document.cost else (None, None)
    return None if low is None or high is None else (min(low, high), max(low, high))


def _fixed_cost(document: PlanDocument) -> float | None:
    """Return what a stack costs a month without any job."""
    return document.cost.fixed.total.value if document.cost else None


def _resources(document: PlanDocument) -> Resources:
    return {resource.urn: resource for resource in document.resources if resource.type != STACK}


def _removed(before: Resources, after: Resources) -> Iterator[Change]:
    for urn, resource in before.items():
        if urn not in after and resource.custom:
            yield _change(resource, "remove", "update", (), (), resource.protect)


def _added(before: Resources, after: Resources) -> Iterator[Change]:
    for urn, resource in after.items():
        if urn not in before and resource.custom:
            yield _change(resource, "add", "update", (), (), False)


def _changed(before: Resources, after: Resources, drafts: Mapping[str, Draft]) -> Iterator[Change]:
    for urn, draft in drafts.items():
        if draft.effect == "none":
            continue
        action: Action = "replace" if draft.effect == "replace" else "change"
        protected = before[urn].protect and after[urn].protect
        yield _change(after[urn], action, draft.effect, tuple(draft.why), tuple(draft.fields), protected)


def _change(
    resource: Resource,
    action: Action,
    replaced: Effect,
    why: tuple[str, ...],
    changed: tuple[FieldChange, ...],
    protected: bool,
) -> Change:
    return Change(
        urn=clean(resource.urn),
        type=clean(resource.type),
        name=clean(resource.name),
        owner=label(resource.parent),
        action=action,
        replaced=replaced,
        why=why,
        fields=changed,
        protected=protected,
    )


def _risk(change: Change) -> int:
    if change.action in ("remove", "replace"):
        return 0 if change.action == "replace" else 1
    return 2 if change.replaced == "unknown" else 3 if change.action == "change" else 4


def _refused(changes: list[Change], before: Resources, after: Resources, drafts: Mapping[str, Draft]) -> Iterator[str]:
    """Return the changes that would stop `pulumi up`."""
    for change in changes:
        if change.protected and change.action in ("remove", "replace"):
            action = "removed" if change.action == "remove" else "replaced"
            yield (
                f"{change.type.rpartition(':')[2]} {change.name} is protected and would be {action}: Pulumi refuses, "
                f"and what it holds would be lost"
            )
    for urn, draft in drafts.items():
        resource = after[urn]
        if resource.type != CLUSTER or draft.effect == "replace":
            continue
        subnets = resource.property_dependencies.get("vpcConfig", ())
        if any(_moves(after, drafts, subnet) for subnet in subnets):
            yield (
                f"EKS cannot move cluster {clean(resource.name)} into another VPC, and its network is replaced: "
                f"the update fails. Leave the network as it is, or build a new stack beside this one and move the "
                f"runners"
            )
        was, becomes = (_version(resources[urn].inputs.get("version")) for resources in (before, after))
        if was and becomes and not was <= becomes <= (was[0], was[1] + 1):
            step = "go back to an older version" if becomes < was else "skip a Kubernetes minor version"
            yield f"EKS cannot {step}: {was[0]}.{was[1]} to {becomes[0]}.{becomes[1]}"


def _moves(after: Resources, drafts: Mapping[str, Draft], urn: str) -> bool:
    """Return whether a subnet ends up in another VPC."""
    if urn not in after or after[urn].type != SUBNET or urn not in drafts:
        return False
    vpcs = after[urn].property_dependencies.get("vpcId", ())
    return any(vpc in drafts and drafts[vpc].effect == "replace" for vpc in vpcs)


def _version(value: Any) -> tuple[int, int] | None:
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _findings(old: PlanDocument, new: PlanDocument) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that are fixed, and the new ones. A finding with a new wording alone is the same."""

    def key(finding: Finding) -> tuple[str, str, str]:
        return current_id(finding.id), finding.severity, finding.subject

    def beyond(findings: list[Finding], baseline: list[Finding]) -> tuple[Finding, ...]:
        unmatched, extra = Counter(map(key, baseline)), []
        for finding in findings:
            if unmatched[key(finding)]:
                unmatched[key(finding)] -= 1
            else:
                texts = (finding.subject, finding.message, finding.fix)
                extra.append(Finding(clean(finding.id), finding.severity, *map(clean, texts)))
        return tuple(extra)

    return beyond(old.findings, new.findings), beyond(new.findings, old.findings)


def _fits(old: PlanDocument, new: PlanDocument) -> Iterator[FitChange]:
    before, after = ({(fit.runner, fit.pool, fit.instance): fit for fit in plan.fit} for plan in (old, new))
    for key in sorted({*before, *after}):
        was, becomes = before.get(key), after.get(key)
        if was and becomes and (was.per_node, was.limiting) == (becomes.per_node, becomes.limiting):
            continue
        runner, pool, instance = map(clean, key)
        yield FitChange(
            runner,
            pool,
            instance,
            old=was.per_node if was else None,
            new=becomes.per_node if becomes else None,
            old_limit=clean(was.limiting) if was else "",
            new_limit=clean(becomes.limiting) if becomes else "",
        )


def _notes(changes: list[Change], old: PlanDocument, new: PlanDocument) -> Iterator[str]:
    if any(plan.cost and plan.cost.missing for plan in (old, new)):
        yield "part of the cost is unknown, so the amounts are lower bounds"
    if any(change.type == AWS_PROVIDER and any("defaultTags" in f.keys for f in change.fields) for change in changes):
        yield "the provider's default tags change: every AWS resource that it made is updated in place"
    if any(change.action == "add" for change in changes) and any(change.action == "remove" for change in changes):
        yield "a renamed resource shows as one removed and one added: aliases cannot be seen in a plan"
