"""Actions Runner Controller as it is in a cluster, and whether it can be brought to another version. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import one_line, program
from paddock.fleet.model.mirror import chart_name
from paddock.operate.chain.links import arc as links
from paddock.operate.chain.links.evidence import condition
from paddock.operate.chain.subject import set_name, subject
from paddock.operate.lifecycle.phases import Refused
from paddock.operate.lifecycle.report import ScaleSet
from paddock.operate.runners.drain import Scope, drained_by, known, left
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.sources.pulumi import RELEASE, Resource

COMMAND = "arc.upgrade"
PARTS = ("runner_sets", "listeners", "runner_groups", "runners", "pods", "nodes", "deployments")
VERSION = "app.kubernetes.io/version"
"""Label in which both charts state their version; ARC's controller compares that of its sets with its own."""
_CONTROLLER_CHART, _SET_CHART = "gha-runner-scale-set-controller", "gha-runner-scale-set"
_GROUP = ".actions.github.com"
_SEMANTIC = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_KINDS = {"listeners": "AutoscalingListener", "runner_groups": "EphemeralRunnerSet", "runners": "EphemeralRunner"}
_NOT_READ = "could not be read, so nothing is changed"


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of an upgrade, as the cluster is."""

    installed: str
    target: str
    controller: Object
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


def plan(snapshot: Snapshot, stack: str, target: str) -> Plan:
    """Return what an upgrade to a version has to do. Raises Refused, and Unavailable for what is not known."""
    fleet = snapshot.fleet
    for part, what in (("deployments", "controller"), ("runner_sets", "scale sets"), ("listeners", "listeners")):
        known(getattr(snapshot, part), f"{what}: {_NOT_READ}")
    item = controller(snapshot, stack)
    installed = _version(item)
    if installed is None:
        label = (item["metadata"].get("labels") or {}).get(VERSION)
        raise Refused(
            f"the version of {name(item)} is not known: its label {VERSION} is {label or 'absent'}"
            "\n    expected: three numbers, as ARC's chart writes them"
            f"\n    fix: helm list -n {item['metadata']['namespace']}; if it is the fleet's, pulumi up --stack {stack}"
        )
    _no_downgrade(name(item), installed, target)
    absent = tuple(kind for part, kind in _KINDS.items() if getattr(snapshot, part).absent)
    sets = tuple(_set(snapshot, key) for key in fleet.runners)
    for key in fleet.runners:
        _refuse_set(snapshot, key, installed, target)
    return Plan(
        installed,
        target,
        item,
        sets,
        tuple(work.runner for work in left(snapshot, Scope(list(fleet.runners))) if work.job),
        absent,
        installed != target or bool(not_available(item, target)) or bool(absent),
        tuple(scale_set.name for scale_set in sets if scale_set.version != target),
        tuple(reason for key in fleet.runners if (reason := unserved(snapshot, key, target, drained=True))),
        ours(snapshot),
    )


def controller(snapshot: Snapshot, stack: str) -> Object:
    """Return ARC's controller. Raises Refused where the cluster has none, or several."""
    if snapshot.runner_sets.absent:
        raise Refused(
            f"the cluster has no Actions Runner Controller: it knows no AutoscalingRunnerSet"
            f"\n    fix: pulumi up --stack {stack}, which installs it"
        )
    matches = links.controllers(snapshot)
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(map(name, matches))
        raise Refused(f"the cluster has several controllers: {names}\n    fix: helm uninstall all but the fleet's")
    raise Refused(
        f"the cluster has no Deployment of ARC's controller\n    fix: pulumi up --stack {stack}, which installs it"
    )


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
    scale_set = snapshot.fleet.runners[key].scale_set
    return next((item for item in snapshot.runner_sets if set_name(item) == scale_set), None)


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
        raise Refused(f"{title} is being deleted since {gone}\n    expected: scale sets that stand\n    fix: {fix}")
    if phase in ("Outdated", "Failed"):
        raise Refused(f"{title} has the phase {phase}\n    expected: Running\n    fix: {fix}")
    if version is not None and _SEMANTIC.fullmatch(version):
        _no_downgrade(title, version, target)


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
