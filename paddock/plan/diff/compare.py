"""Comparison of two plans of a stack: changes, their effect on running jobs, and notes for a reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from paddock.plan.diff import costs, eks_limits, fields, impact, refusals, renames
from paddock.plan.diff.changes import STACK, drafts, label
from paddock.plan.diff.fields import clean
from paddock.plan.diff.impact import Draft
from paddock.plan.diff.model import Action, Change, Diff, FieldChange, FitChange, Verdict
from paddock.plan.diff.refusals import Compared
from paddock.plan.diff.renames import NewNames, Pair
from paddock.plan.diff.replacement import AWS_PROVIDER, Effect
from paddock.plan.document.model import PlanDocument, Resource
from paddock.plan.engine.resource_types import CLUSTER, SUBNET
from paddock.plan.finding import Finding, Step, current_id

Resources = Mapping[str, Resource]


def compare(old: PlanDocument, new: PlanDocument) -> Diff:
    """Return the difference of two plans."""
    before, after = _resources(old), _resources(new)
    drafts_by_urn = drafts(before, after)
    changes = [*_removed(before, after), *_changed(before, after, drafts_by_urn), *_added(before, after)]
    changes.sort(key=lambda change: (_risk(change), change.follows, change.owner, change.type, change.name))
    rolls = impact.rolls(before, after, drafts_by_urn)
    pairs = renames.find(old, new)
    names = NewNames((pair.old, pair.new) for pair in pairs)
    fixed, appeared = renames.beyond_findings(*_findings(old, new), names)
    rest = renames.fold(
        pairs,
        changes,
        rolls,
        impact.interruptions(old.fit, before, rolls),
        impact.scale_sets(before, after, drafts_by_urn),
    )
    plans = Compared(before, after, drafts_by_urn, new.fleet.region, new.fleet.kubernetes, str(new.planned))
    limits = tuple(refusals.moved(old.fleet.region, plans)) or (*eks_limits.limits(plans), *refusals.limits(plans))
    diff = Diff(
        verdict="none",
        stack=clean(new.stack),
        project=clean(new.project),
        renames=rest.renames,
        changes=rest.changes,
        refused=(*refusals.protected(changes), *refusals.said(limits, "refused")),
        rolls=rest.rolls,
        interruptions=rest.interruptions,
        scale_sets=rest.scale_sets,
        new_findings=appeared,
        fixed_findings=fixed,
        new_steps=tuple(_new_steps(old, new, names)),
        fits=tuple(_fits(old, new, pairs)),
        cost=costs.compare(old.cost, new.cost, pairs),
        outputs=tuple(names.beyond(fields.compare(old.outputs, new.outputs))),
        notes=(*refusals.said(limits, "note"), *_notes(rest.changes, old, new)),
    )
    return diff.model_copy(update={"verdict": _verdict(diff)})


def _verdict(diff: Diff) -> Verdict:
    if diff.refused:
        return "refused"
    if diff.renames or diff.count("replace") or diff.count("remove") or diff.unsure:
        return "replaces"
    if diff.rolls or diff.interruptions:
        return "interrupts"
    return "none" if diff.empty else "safe"


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
                subject, message, fix = map(clean, (finding.subject, finding.message, finding.fix))
                extra.append(Finding(clean(finding.id), finding.severity, subject, message, fix))
        return tuple(extra)

    return beyond(old.findings, new.findings), beyond(new.findings, old.findings)


def _new_steps(old: PlanDocument, new: PlanDocument, names: NewNames) -> Iterator[Step]:
    for step in new.before_up:
        if not any(names.same_text(other.text, step.text) for other in old.before_up if other.id == step.id):
            yield Step(*map(clean, (step.id, step.subject, step.text, step.command)))


def _fits(old: PlanDocument, new: PlanDocument, pairs: Sequence[Pair]) -> Iterator[FitChange]:
    pools, runners = renames.keys(pairs, "pool"), renames.keys(pairs, "runner")
    before = {
        (runners.get(fit.runner, fit.runner), pools.get(fit.pool, fit.pool), fit.instance): fit for fit in old.fit
    }
    after = {(fit.runner, fit.pool, fit.instance): fit for fit in new.fit}
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


def _notes(changes: Sequence[Change], old: PlanDocument, new: PlanDocument) -> Iterator[str]:
    has_own_subnets = any(resource.type == SUBNET for resource in new.resources)
    subnets = [f for c in changes if c.type == CLUSTER for f in c.fields if f.keys[:2] == ("vpcConfig", "subnetIds")]
    if subnets and not has_own_subnets:
        yield "EKS takes other subnets only in the zones it was created in; those of adopted subnets are not in a plan"
    if any(plan.cost and plan.cost.missing for plan in (old, new)):
        yield "part of the cost is unknown, so the amounts are lower bounds"
    if any(change.type == AWS_PROVIDER and any("defaultTags" in f.keys for f in change.fields) for change in changes):
        yield "the provider's default tags change: every AWS resource that it made is updated in place"
    if any(change.action == "add" for change in changes) and any(change.action == "remove" for change in changes):
        yield "a renamed resource shows as one removed and one added: aliases cannot be seen in a plan"
