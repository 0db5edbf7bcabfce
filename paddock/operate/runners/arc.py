"""Actions Runner Controller as it is in a cluster, and whether it can be brought to another version. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import one_line, program
from paddock.fleet.arc import systems
from paddock.fleet.model.mirror import chart_name
from paddock.operate.phases import Refused
from paddock.operate.runners.draining import Scope, drained_by, known, left
from paddock.operate.snapshot.model import Object, Snapshot, name, of_fleet
from paddock.operate.why.links import arc as links
from paddock.operate.why.links.evidence import condition
from paddock.operate.why.subject import runner_set_of, subject
from paddock.pulumi_cli.stack import RELEASE, Resource

COMMAND = "runners.upgrade"
PARTS = ("runner_sets", "listeners", "runner_groups", "runners", "pods", "nodes", "deployments")
VERSION = "app.kubernetes.io/version"
"""Label in which both charts state their version; ARC's controller compares that of its sets with its own."""
_CONTROLLER_CHART, _SET_CHART = "gha-runner-scale-set-controller", "gha-runner-scale-set"
_GROUP = ".actions.github.com"
_SEMANTIC = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_KINDS = {"listeners": "AutoscalingListener", "runner_groups": "EphemeralRunnerSet", "runners": "EphemeralRunner"}
_NOT_READ = "could not be read, so nothing is changed"


@dataclass(frozen=True, kw_only=True)
class ScaleSet:
    """A scale set before the upgrade."""

    name: str
    version: str | None
    """Version of the chart that made it; None where it does not say."""
    phase: str | None
    present: bool = True
    """False where it is not in the cluster."""
    drained: bool = False


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """Work of an upgrade, as the cluster is."""

    installed: str
    target: str
    controllers: tuple[Object, ...]
    """One for each namespace of controllers that the fleet has."""
    sets: tuple[ScaleSet, ...]
    jobs: tuple[str, ...]
    absent_crds: tuple[str, ...]
    """Kinds of ARC that the cluster does not know."""
    new_controller: bool
    """True where the controller is of another version or not available yet, or a CRD is absent."""
    behind: tuple[str, ...]
    """Scale sets of another version, or absent."""
    unwell: tuple[str, ...]
    """Scale sets of the new version that are not served, with the reason."""
    drained: tuple[str, ...]
    """Keys of runners that an upgrade drained and did not give back."""

    @property
    def nothing(self) -> bool:
        return not (self.new_controller or self.behind or self.unwell or self.drained)


def plan(snapshot: Snapshot, stack: str, target: str) -> UpgradePlan:
    """Return what an upgrade to a version has to do. Raises Refused, and Unavailable for what is not known."""
    fleet = snapshot.fleet
    for part, what in (("deployments", "controller"), ("runner_sets", "scale sets"), ("listeners", "listeners")):
        known(getattr(snapshot, part), f"{what}: {_NOT_READ}")
    items = controllers(snapshot, stack)
    installed = min((_installed(item, stack, target) for item in items), key=_numbers)
    late = installed != target or any(not_available(item, target) for item in items)
    if fleet.controller_of_others:
        late = False
        _refuse_controller_of_others(items[0], installed, target)
    elif late and fleet.controller == "everywhere":
        _refuse_sets_of_others(snapshot, target)
    absent = tuple(kind for part, kind in _KINDS.items() if getattr(snapshot, part).absent)
    sets = tuple(_set(snapshot, key) for key in fleet.runners)
    for key in fleet.runners:
        _refuse_set(snapshot, key, installed, target)
    return UpgradePlan(
        installed,
        target,
        items,
        sets,
        tuple(work.runner for work in left(snapshot, Scope(list(fleet.runners))) if work.job),
        absent,
        late or bool(absent and not fleet.controller_of_others),
        tuple(scale_set.name for scale_set in sets if scale_set.version != target),
        tuple(reason for key in fleet.runners if (reason := unserved(snapshot, key, target, drained=True))),
        ours(snapshot),
    )


def controllers(snapshot: Snapshot, stack: str) -> tuple[Object, ...]:
    """Return ARC's controllers that serve the fleet. Raises Refused where one is not there, or is there twice."""
    if snapshot.runner_sets.absent:
        raise Refused(
            f"the cluster has no Actions Runner Controller: it knows no AutoscalingRunnerSet"
            f"\n    fix: pulumi up --stack {stack}, which installs it"
        )
    serving = []
    for place in systems(snapshot.fleet):
        matches = [item for item in links.controllers(snapshot) if item["metadata"].get("namespace") == place]
        if len(matches) > 1:
            names = ", ".join(map(name, matches))
            raise Refused(f"{place} has several controllers: {names}\n    fix: helm uninstall all but the fleet's")
        if not matches:
            fix = "cluster.arc.controller" if snapshot.fleet.controller_of_others else f"pulumi up --stack {stack}"
            raise Refused(f"{place} has no Deployment of ARC's controller\n    fix: {fix}, which installs it")
        serving += matches
    return tuple(serving)


def not_available(item: Object, target: str) -> str:
    """Return why a controller does not work at a version yet; empty where it does."""
    version = (item["metadata"].get("labels") or {}).get(VERSION)
    if version != target:
        return f"{name(item)} is {version or 'without a version'}, not {target}"
    status, replicas = item.get("status") or {}, int(item["spec"].get("replicas", 1))
    if int(status.get("observedGeneration") or 0) < int(item["metadata"].get("generation") or 0):
        return f"{name(item)}: its change is not taken up yet"
    updated, available = int(status.get("updatedReplicas") or 0), int(status.get("availableReplicas") or 0)
    if updated >= replicas and available >= replicas and int(status.get("replicas") or 0) <= replicas:
        return ""
    reason = condition(item, "Progressing").get("message") or condition(item, "Available").get("message")
    detail = f": {one_line(str(reason))}" if reason else ""
    return f"{name(item)}: {available} of {replicas} replicas are available{detail}"


def unserved(snapshot: Snapshot, key: str, target: str, *, drained: bool = False) -> str:
    """Return why a scale set does not work at a version yet; empty where it does.

    With `drained` only what is of the new version is judged, and a set that is behind is not.
    """
    item = runner_set(snapshot, key)
    title = f"scale set {snapshot.fleet.runners[key].scale_set}"
    if item is None:
        return "" if drained else f"{title} is not in the cluster"
    version, phase = _label(item), (item.get("status") or {}).get("phase")
    if version != target:
        return "" if drained else f"{title} is {version or 'without a version'}, not {target}"
    if item["metadata"].get("deletionTimestamp"):
        return f"{title} is being deleted"
    if phase != "Running":
        return f"{title} has the phase {phase or 'none'}, not Running"
    judged = links.listener(snapshot, subject(snapshot, key))
    return "" if judged.status == "ok" else f"{title}: {judged.evidence}"


def ours(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the keys of runners that an upgrade has drained."""
    matches = ((key, runner_set(snapshot, key)) for key in snapshot.fleet.runners)
    return tuple(key for key, item in matches if item is not None and drained_by(item) == COMMAND)


def leaving(snapshot: Snapshot, target: str) -> list[str]:
    """Return the scale sets that are being deleted: a controller of another minor deletes those of the old one."""
    matches = (runner_set(snapshot, key) for key in snapshot.fleet.runners)
    return [name(item) for item in matches if item is not None and item["metadata"].get("deletionTimestamp")]


def other_minor(installed: str, target: str) -> bool:
    """Return whether a controller of `target` deletes scale sets of `installed`, as ARC's IsVersionAllowed says."""
    return _numbers(installed)[:2] != _numbers(target)[:2]


def runner_set(snapshot: Snapshot, key: str) -> Object | None:
    return runner_set_of(snapshot, snapshot.fleet.runners[key])


def targets(resources: Sequence[Resource]) -> list[str]:
    """Return the URNs of ARC's CRDs and controller, which come before the scale sets."""
    crds = [item.urn for item in resources if "CustomResourceDefinition" in item.type and item.urn.endswith(_GROUP)]
    return [*crds, *(item.urn for item in resources if _chart(item) == _CONTROLLER_CHART)]


def set_releases(resources: Sequence[Resource]) -> dict[str, Resource]:
    """Return the releases of scale sets by the set's name."""
    return {str(item.inputs.get("name")): item for item in resources if _chart(item) == _SET_CHART}


def _chart(item: Resource) -> str:
    return chart_name(str(item.inputs.get("chart"))) if item.type == RELEASE else ""


def _set(snapshot: Snapshot, key: str) -> ScaleSet:
    item = runner_set(snapshot, key)
    title = snapshot.fleet.runners[key].scale_set
    if item is None:
        return ScaleSet(name=title, version=None, phase=None, present=False)
    phase = (item.get("status") or {}).get("phase")
    return ScaleSet(name=title, version=_label(item), phase=phase, drained=drained_by(item) is not None)


def _refuse_set(snapshot: Snapshot, key: str, installed: str, target: str) -> None:
    item = runner_set(snapshot, key)
    if item is None:
        return
    title, version = name(item), _label(item)
    phase = (item.get("status") or {}).get("phase")
    fix = f"{program()} why {snapshot.fleet.runners[key].scale_set}"
    # A controller that is newer than the set deletes it; that is a step of an upgrade that was interrupted.
    expected = installed == target and (
        version is None or not _SEMANTIC.fullmatch(version) or other_minor(version, target)
    )
    if (gone := item["metadata"].get("deletionTimestamp")) and not expected:
        raise Refused(f"{title} has been terminating since {gone}\n    expected: scale sets that stay\n    fix: {fix}")
    if phase in ("Outdated", "Failed"):
        raise Refused(f"{title} has the phase {phase}\n    expected: Running\n    fix: {fix}")
    if version is not None and _SEMANTIC.fullmatch(version):
        _no_downgrade(title, version, target)


def _installed(item: Object, stack: str, target: str) -> str:
    """Return the version of a controller. Raises Refused where it is not known, or newer than the target."""
    installed = _version(item)
    if installed is None:
        label = (item["metadata"].get("labels") or {}).get(VERSION)
        raise Refused(
            f"the version of {name(item)} is not known: its label {VERSION} is {label or 'absent'}"
            "\n    expected: three numbers, as ARC's chart writes them"
            f"\n    fix: helm list -n {item['metadata']['namespace']}; if it is the fleet's, pulumi up --stack {stack}"
        )
    _no_downgrade(name(item), installed, target)
    return installed


def _refuse_controller_of_others(item: Object, installed: str, target: str) -> None:
    if other_minor(installed, target):
        raise Refused(
            f"{name(item)} is {installed} and another team's, and deletes scale sets of {target}"
            f"\n    expected: a controller of {'.'.join(map(str, _numbers(target)[:2]))}"
            f"\n    fix: its owner upgrades it to {target}, and {COMMAND} brings the scale sets after it"
        )


def _refuse_sets_of_others(snapshot: Snapshot, target: str) -> None:
    """Refuse what the new controller, which sees the whole cluster, would delete. Raises Refused."""
    others = [item for item in snapshot.runner_sets if not of_fleet(snapshot.fleet, item)]
    lost = [f"{name(item)} {_label(item) or ''}".strip() for item in others if other_minor(_label(item) or "", target)]
    if lost:
        raise Refused(
            f"the controller of {target} would delete scale sets of others, of another minor: {', '.join(lost)}"
            "\n    expected: none of them in what it sees"
            "\n    fix: cluster.arc.controller: own and pulumi up, or their owners uninstall them first"
        )


def _no_downgrade(title: str, version: str, target: str) -> None:
    if _numbers(version) > _numbers(target):
        raise Refused(
            f"{title} is {version}, which is newer than {target}, the version that this Paddock pins"
            f"\n    expected: an upgrade; CRDs of a newer version are not taken back"
            f'\n    fix: a newer Paddock, or ARC = "{version}" in infra/versions.py'
        )


def _numbers(version: str) -> tuple[int, ...]:
    match = _SEMANTIC.match(version)
    return tuple(map(int, match.groups())) if match else ()


def _version(item: Object) -> str | None:
    version = _label(item)
    return version if version is not None and _SEMANTIC.fullmatch(version) else None


def _label(item: Object) -> str | None:
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels.get(VERSION)
