"""Effect of a change on each resource that two plans of a stack share."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.plan.diff import fields, impact, replacement
from paddock.plan.diff.fields import clean
from paddock.plan.diff.impact import Draft
from paddock.plan.diff.model import FieldChange
from paddock.plan.diff.replacement import Effect
from paddock.plan.document.model import Resource
from paddock.plan.engine.fake_cloud import ACCOUNT
from paddock.plan.engine.resource_types import LAUNCH_TEMPLATE, NODE_GROUP, SECRET

STACK = "pulumi:pulumi:Stack"
_URN = "urn:pulumi:"


_RANK = {"none": 0, "update": 1, "unknown": 2, "replace": 3}


def drafts(before: Mapping[str, Resource], after: Mapping[str, Resource]) -> dict[str, Draft]:
    """URN -> what becomes of it; `before` and `after` are the plans' resources by URN."""
    drafts_by_urn = {urn: _draft(before[urn], after[urn]) for urn in after if urn in before}
    _spread(after, drafts_by_urn)
    return drafts_by_urn


def label(urn: str) -> str:
    """Return a URN in short form: `GpuPool t4`; nothing for the stack."""
    if not urn.startswith(_URN) or urn.count("::") < 3:
        return ""
    types, _, name = urn.split("::", 2)[2].partition("::")
    last = types.rpartition("$")[2]
    return "" if last == STACK else clean(f"{last.rpartition(':')[2]} {name}")


def _draft(old: Resource, new: Resource) -> Draft:
    """Return the effect of the inputs alone."""
    type_ = new.type
    hidden = ("data", "stringData") if type_ == SECRET else ()
    changed = [
        field
        for field in fields.compare(old.inputs, new.inputs, hidden)
        if not _ignored(field, new.ignore_changes) and not _only_stand_in(field, old, new)
    ]
    if not new.custom:
        # A component's own inputs show in what it makes; only its children are made and cost something.
        return Draft([], "none", [])
    draft = Draft(changed, "none", [], frozenset(f.keys[0] for f in changed))
    for field in changed:
        _apply(draft, _effect(old, new, field), field)
    if _provider(old) != _provider(new):
        was, becomes = (label(_provider(resource)) or "the default one" for resource in (old, new))
        draft.fields.append(FieldChange("(provider)", was, becomes))
        _raise(draft, "unknown", "whether another provider means another place is unknown")
    for option, before, after in (
        ("protect", old.protect, new.protect),
        ("deleteBeforeReplace", old.delete_before_replace, new.delete_before_replace),
    ):
        if before != after:
            draft.fields.append(FieldChange(f"({option})", fields.short(before), fields.short(after)))
            _raise(draft, "update", "")
    return draft


def _effect(old: Resource, new: Resource, changed: FieldChange) -> Effect:
    labels = tuple(replacement.SCALE_SET_LABELS.split("."))
    if (
        changed.keys[:2] == labels
        and impact.is_scale_set(new)
        and sorted(impact.labels(old)) != sorted(impact.labels(new))
    ):
        return "replace"
    if (changed.keys, changed.old, changed.new) == (("amiType",), None, "CUSTOM"):
        return "update"  # what EKS said of such a group before the program did
    return replacement.effect(new.type, changed.keys)


def _apply(draft: Draft, effect: Effect, changed: FieldChange) -> None:
    match effect:
        case "replace":
            _raise(draft, effect, f"{changed.path} forces it")
        case "unknown":
            _raise(draft, effect, f"what a change of {changed.path} does is unknown")
        case _:
            _raise(draft, effect, "")


def _raise(draft: Draft, effect: Effect, why: str) -> bool:
    """Notes an effect; True where it was news."""
    grew = _RANK[effect] > _RANK[draft.effect]
    if grew:
        draft.effect = effect
    if why and why not in draft.why:
        draft.why.append(why)
        return True
    return grew


def _ignored(changed: FieldChange, ignore: list[str]) -> bool:
    path = ".".join(changed.keys)
    return any(path == ignored or path.startswith((f"{ignored}.", f"{ignored}[")) for ignored in ignore)


def _only_stand_in(changed: FieldChange, old: Resource, new: Resource) -> bool:
    """Return whether only a stand-in differs: the same resource's ARN, as two versions of Paddock invent it."""
    before, after = (resource.property_dependencies.get(changed.keys[0]) for resource in (old, new))
    return bool(before) and before == after and all(ACCOUNT in (text or "") for text in (changed.old, changed.new))


def _spread(after: Mapping[str, Resource], drafts: dict[str, Draft]) -> None:
    """Mark as changed all that use the id of a replaced resource."""
    dependents: dict[str, list[tuple[str, str]]] = {}
    for urn, resource in after.items():
        if urn not in drafts or not resource.custom:
            continue
        for key, urns in resource.property_dependencies.items():
            for dependency in urns:
                dependents.setdefault(dependency, []).append((urn, key))
        if _provider(resource):
            dependents.setdefault(_provider(resource), []).append((urn, ""))
    waiting = [urn for urn, draft in drafts.items() if draft.effect != "none"]
    while waiting:
        source = waiting.pop(0)
        for urn, key in dependents.get(source, ()):
            if _follow(after, drafts, source, urn, key):
                waiting.append(urn)


def _follow(after: Mapping[str, Resource], drafts: dict[str, Draft], source: str, urn: str, key: str) -> bool:
    level, draft, type_, name = drafts[source].effect, drafts[urn], after[urn].type, clean(after[source].name)
    if level == "update" or level == "unknown":
        new_version = after[source].type == LAUNCH_TEMPLATE and type_ == NODE_GROUP and key == "launchTemplate"
        if new_version and any(map(replacement.makes_version, drafts[source].roots)):
            draft.roots |= {"launchTemplate"}
            news = _raise(draft, "update", f"launchTemplate.version takes the new version of {name}")
            if level == "update":
                return news
        elif level == "update":
            return False
    if level == "none":
        return False
    if not key:
        reason = (
            f"the provider {name} is{'' if level == 'replace' else ' perhaps'} replaced, and all that it made with it"
        )
        return _raise(draft, level, reason)
    forces = replacement.effect(type_, replacement.reference(type_, key))
    becomes = "is replaced" if level == "replace" else "may be replaced"
    if forces == "replace":
        draft.roots |= {key}
        return _raise(draft, level, f"{clean(key)} forces it: it comes from {name}, which {becomes}")
    if level != "replace":
        return False
    draft.roots |= {key}
    unknown = "; what that does is unknown" if forces == "unknown" else ""
    return _raise(draft, forces, f"{clean(key)} comes from {name}, which {becomes}{unknown}")


def _provider(resource: Resource) -> str:
    """URN of the provider; its id is made up in a plan."""
    provider = resource.provider
    return provider.rpartition("::")[0] if provider.count("::") > 3 else provider
