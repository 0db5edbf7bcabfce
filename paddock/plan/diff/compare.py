"""What changes between two plans of a stack, what that does to what runs, and what a reviewer must know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from paddock.plan.diff import fields, impact
from paddock.plan.diff.changes import STACK, Draft, drafts, label
from paddock.plan.diff.fields import Field, clean
from paddock.plan.diff.impact import Interruption, Roll, ScaleSet
from paddock.plan.diff.replacement import AWS_PROVIDER, CLUSTER, SUBNET, Effect
from paddock.plan.finding import current_id

SCHEMA = "paddock.diff/1"
Action = Literal["add", "remove", "replace", "change"]
Verdict = Literal["none", "safe", "interrupts", "replaces", "refused"]


@dataclass(frozen=True, slots=True)
class Change:
    """One resource that is not as it was."""

    urn: str
    type: str
    name: str
    owner: str
    """The component it belongs to: `GpuPool t4`."""
    action: Action
    replaced: Effect
    """`replace` is certain, `unknown` is possible, `update` is neither."""
    why: tuple[str, ...]
    """What forces a replacement or may, and what changes because another resource does."""
    fields: tuple[Field, ...]
    protected: bool
    """Pulumi refuses to delete or replace it."""

    @property
    def follows(self) -> bool:
        """Whether it changes only because another resource does."""
        return self.action in ("replace", "change") and not self.fields


@dataclass(frozen=True, slots=True)
class FitChange:
    """How many of a runner's jobs a node holds; None where the pairing is not in that plan."""

    runner: str
    pool: str
    instance: str
    old: int | None
    new: int | None
    old_limit: str
    new_limit: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars a month. None where a plan has no such number."""

    old: tuple[float, float] | None
    new: tuple[float, float] | None
    old_fixed: float | None
    new_fixed: float | None


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that differs; the renderers and the JSON document only print it."""

    stack: str
    project: str
    changes: tuple[Change, ...]
    """Riskiest first."""
    refused: tuple[str, ...]
    """What Pulumi or AWS will not do."""
    rolls: tuple[Roll, ...]
    interruptions: tuple[Interruption, ...]
    scale_sets: tuple[ScaleSet, ...]
    new_findings: tuple[Mapping[str, str], ...]
    fixed_findings: tuple[Mapping[str, str], ...]
    fits: tuple[FitChange, ...]
    cost: Cost
    outputs: tuple[Field, ...]
    notes: tuple[str, ...]

    def count(self, action: Action) -> int:
        return sum(change.action == action for change in self.changes)

    @property
    def following(self) -> int:
        """Replacements that are there only because another one is."""
        return sum(change.follows for change in self.changes if change.action == "replace")

    @property
    def unsure(self) -> tuple[Change, ...]:
        """Changes that may turn out to be replacements."""
        return tuple(change for change in self.changes if change.action == "change" and change.replaced == "unknown")

    @property
    def empty(self) -> bool:
        findings = self.new_findings or self.fixed_findings
        cost = self.cost.old != self.cost.new or self.cost.old_fixed != self.cost.new_fixed
        return not (self.changes or findings or self.fits or self.outputs or cost)

    @property
    def verdict(self) -> Verdict:
        if self.refused:
            return "refused"
        if self.count("replace") or self.count("remove") or self.unsure:
            return "replaces"
        if self.rolls or self.interruptions:
            return "interrupts"
        return "none" if self.empty else "safe"


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Diff:
    """The difference of two plans' documents, both of the shape that `saved.read` vouches for."""
    before, after = _resources(old), _resources(new)
    found = drafts(before, after)
    changes = [*_gone(before, after), *_kept(before, after, found), *_come(before, after)]
    changes.sort(key=lambda change: (_risk(change), change.follows, change.owner, change.type, change.name))
    levels: dict[str, impact.Level] = {
        urn: impact.Level(draft.effect, tuple(draft.why), draft.roots) for urn, draft in found.items()
    }
    rolls = impact.rolls(before, after, levels)
    fixed, appeared = _findings(old, new)
    cost = Cost(monthly(old), monthly(new), fixed_cost(old), fixed_cost(new))
    return Diff(
        stack=clean(str(new.get("stack", ""))),
        project=clean(str(new.get("project", ""))),
        changes=tuple(changes),
        refused=tuple(_refused(changes, before, after, found)),
        rolls=rolls,
        interruptions=impact.interruptions(old, before, rolls),
        scale_sets=impact.scale_sets(before, after, levels),
        new_findings=appeared,
        fixed_findings=fixed,
        fits=tuple(_fits(old, new)),
        cost=cost,
        outputs=fields.compare(old["outputs"], new["outputs"]),
        notes=tuple(_notes(changes, old, new)),
    )


def document(diff: Diff) -> dict[str, Any]:
    """The difference as JSON-ready data."""
    found = asdict(diff)
    for change in found["changes"]:
        for each in change["fields"]:
            each.pop("keys")
    for each in found["outputs"]:
        each.pop("keys")
    return {"schema": SCHEMA, "verdict": diff.verdict, **found}


def monthly(document: Mapping[str, Any]) -> tuple[float, float] | None:
    """The range that a stack costs a month, or None where its plan does not say. The one reader of these keys."""
    cost = document.get("cost")
    found = cost.get("month", cost.get("monthly")) if isinstance(cost, Mapping) else None
    pair: list[Any] = [found, found]
    if isinstance(found, list | tuple) and len(found) == 2:
        pair = list(found)
    elif isinstance(found, Mapping) and "value" not in found:
        pair = [found.get("low", found.get("min")), found.get("high", found.get("max"))]
    low, high = map(_amount, pair)
    return None if low is None or high is None else (min(low, high), max(low, high))


def fixed_cost(document: Mapping[str, Any]) -> float | None:
    """What a stack costs a month with no job at all: an amount, or one under `total` or `monthly`."""
    cost = document.get("cost")
    found = cost.get("fixed") if isinstance(cost, Mapping) else None
    if isinstance(found, Mapping) and "value" not in found:
        found = found.get("total", found.get("monthly"))
    return _amount(found)


def _amount(value: Any) -> float | None:
    """Dollars, bare or as the `value` of an object that also tells where they are from."""
    if isinstance(value, Mapping):
        value = value.get("value")
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e12 else None


def _resources(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {resource["urn"]: resource for resource in document["resources"] if resource["type"] != STACK}


def _gone(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for urn, resource in before.items():
        if urn not in after and resource["custom"]:
            yield _change(resource, "remove", "update", (), (), bool(resource["protect"]))


def _come(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for urn, resource in after.items():
        if urn not in before and resource["custom"]:
            yield _change(resource, "add", "update", (), (), False)


def _kept(before: Mapping[str, Any], after: Mapping[str, Any], found: Mapping[str, Draft]) -> Iterator[Change]:
    for urn, draft in found.items():
        if draft.effect == "none":
            continue
        action: Action = "replace" if draft.effect == "replace" else "change"
        protected = bool(before[urn]["protect"] and after[urn]["protect"])
        yield _change(after[urn], action, draft.effect, tuple(draft.why), tuple(draft.fields), protected)


def _change(
    resource: Mapping[str, Any],
    action: Action,
    replaced: Effect,
    why: tuple[str, ...],
    changed: tuple[Field, ...],
    protected: bool,
) -> Change:
    return Change(
        urn=clean(resource["urn"]),
        type=clean(resource["type"]),
        name=clean(resource["name"]),
        owner=label(resource["parent"]),
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


def _refused(
    changes: list[Change], before: Mapping[str, Any], after: Mapping[str, Any], found: Mapping[str, Draft]
) -> Iterator[str]:
    """What `pulumi up` would stop at."""
    for change in changes:
        if change.protected and change.action in ("remove", "replace"):
            done = "removed" if change.action == "remove" else "replaced"
            yield (
                f"{change.type.rpartition(':')[2]} {change.name} is protected and would be {done}: Pulumi refuses, "
                f"and what it holds would be lost"
            )
    for urn, draft in found.items():
        resource = after[urn]
        if resource["type"] != CLUSTER or draft.effect == "replace":
            continue
        subnets = resource["propertyDependencies"].get("vpcConfig", ())
        if any(_moves(after, found, each) for each in subnets):
            yield (
                f"EKS cannot move cluster {clean(resource['name'])} into another VPC, and its network is replaced: "
                f"the update fails. Leave the network as it is, or build a new stack beside this one and move the "
                f"runners"
            )
        was, becomes = (_version(each[urn]["inputs"].get("version")) for each in (before, after))
        if was and becomes and not was <= becomes <= (was[0], was[1] + 1):
            step = "go back to an older version" if becomes < was else "skip a Kubernetes minor version"
            yield f"EKS cannot {step}: {was[0]}.{was[1]} to {becomes[0]}.{becomes[1]}"


def _moves(after: Mapping[str, Any], found: Mapping[str, Draft], urn: str) -> bool:
    """Whether a subnet ends up in another VPC."""
    if urn not in after or after[urn]["type"] != SUBNET or urn not in found:
        return False
    vpcs = after[urn]["propertyDependencies"].get("vpcId", ())
    return any(each in found and found[each].effect == "replace" for each in vpcs)


def _version(value: Any) -> tuple[int, int] | None:
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


_Findings = tuple[Mapping[str, str], ...]


def _findings(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[_Findings, _Findings]:
    """Findings that are gone, and new ones. One whose words alone changed is the same."""

    def key(finding: Mapping[str, Any]) -> tuple[str, str, str]:
        return current_id(finding["id"]), finding["severity"], finding["subject"]

    def beyond(these: list[Any], those: list[Any]) -> _Findings:
        left, found = Counter(map(key, those)), []
        for finding in these:
            if left[key(finding)]:
                left[key(finding)] -= 1
            else:
                found.append(
                    {name: clean(str(finding[name])) for name in ("id", "severity", "subject", "message", "fix")}
                )
        return tuple(found)

    return beyond(old["findings"], new["findings"]), beyond(new["findings"], old["findings"])


def _fits(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FitChange]:
    before, after = ({(f["runner"], f["pool"], f["instance"]): f for f in each["fit"]} for each in (old, new))
    for key in sorted({*before, *after}):
        was, becomes = before.get(key), after.get(key)
        if was and becomes and (was["per_node"], was["limiting"]) == (becomes["per_node"], becomes["limiting"]):
            continue
        runner, pool, instance = map(clean, key)
        yield FitChange(
            runner,
            pool,
            instance,
            old=was["per_node"] if was else None,
            new=becomes["per_node"] if becomes else None,
            old_limit=clean(was["limiting"]) if was else "",
            new_limit=clean(becomes["limiting"]) if becomes else "",
        )


def _notes(changes: list[Change], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if any(isinstance(each.get("cost"), Mapping) and each["cost"].get("missing") for each in (old, new)):
        yield "part of the cost is unknown, so the amounts are lower bounds"
    if any(change.type == AWS_PROVIDER and any("defaultTags" in f.keys for f in change.fields) for change in changes):
        yield "the provider's default tags change: every AWS resource that it made is updated in place"
    if any(change.action == "add" for change in changes) and any(change.action == "remove" for change in changes):
        yield "a renamed resource shows as one removed and one added: aliases cannot be seen in a plan"
