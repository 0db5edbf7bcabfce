"""From an EphemeralRunner to a node: the pod, and what the scheduler makes of it."""

from __future__ import annotations

import re
from datetime import timedelta

from paddock.errors import one_line
from paddock.fleet import nodes
from paddock.fleet.arc import controller
from paddock.fleet.sizing import capacity
from paddock.kubernetes import pods
from paddock.labels import POOL
from paddock.operate.snapshot.model import Object, Snapshot, moment, name
from paddock.operate.why.links.evidence import SETTLES, condition, failures, latest, span, text
from paddock.operate.why.links.given_up import link_of
from paddock.operate.why.objects import key_of
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject, pool_nodes

_BACKOFF = timedelta(minutes=2)
"""ARC waits at most 80 s after a pod that failed before it makes the next."""
_VOLUME = re.compile(r"persistentvolumeclaim|unbound immediate PersistentVolumeClaims", re.IGNORECASE)


def pod(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the runner has a pod, and one that asks for a GPU."""
    if not snapshot.pods.known:
        return unread(snapshot.pods, "pods")
    if subject.pod is None:
        return _no_pod(snapshot, subject)
    item = subject.pod
    if subject.spec.gpus and not _steers_only(subject) and not pods.requests(item).get(nodes.GPU):
        return broken(
            "pod-without-gpu", f"{name(item)} requests no {nodes.GPU}; the stack file has {subject.spec.gpus}"
        )
    return ok(f"{name(item)} was made {span(snapshot.age(item))} ago")


def _steers_only(subject: Subject) -> bool:
    """Return whether the pod only steers jobs, which have pods of their own."""
    return subject.spec.container == "kubernetes-novolume" and subject.steers is None


def _no_pod(snapshot: Snapshot, subject: Subject) -> Outcome:
    item = subject.runner
    if item is None:
        return unknown("there is no runner")
    status, (namespace, own) = item.get("status") or {}, key_of(item)
    names = {"name": own, "namespace": namespace}
    message = one_line(str(status.get("message") or ""))
    if "exceeded quota" not in message and (status.get("reason") == "InvalidPod" or "forbidden" in message.lower()):
        return broken("pod-refused", f"{name(item)}: {status.get('reason') or 'refused'}: {message}", **names)
    failed = failures(item)
    newest = max(filter(None, map(moment, failed.values())), default=None)
    between = bool(failed) and snapshot.since(newest) < _BACKOFF
    if not between and (over := _quota(snapshot, item)):
        quota, evidence = over
        return broken("quota-used-up", evidence, quota=quota, **names)
    if failed:
        evidence = (
            f"{name(item)} has no pod now; {len(failed)} have failed, the last {span(snapshot.since(newest))} ago"
        )
        return ok(evidence, then=link_of(subject))
    age = snapshot.age(item)
    if age < SETTLES:
        return waits(f"{name(item)} has no pod, {span(age)} after it was made")
    return unknown(
        f"{name(item)} has no pod, {span(age)} after it was made, and no object says why",
        controller(snapshot.fleet, subject.spec).log,
    )


def _quota(snapshot: Snapshot, runner: Object) -> tuple[str, str] | None:
    """Return the quota that the runner's pod would exceed, with the figures."""
    template = (runner.get("spec") or {}).get("spec") or {}
    if not template.get("containers"):
        return None
    requested = pods.requests({"spec": template})
    for quota in snapshot.quotas:
        if quota["metadata"]["namespace"] != runner["metadata"]["namespace"] or _scoped(quota, template):
            continue
        status = quota.get("status") or {}
        hard, used = pods.amounts(status.get("hard")), pods.amounts(status.get("used"))
        for resource, limit in hard.items():
            need = requested.get(resource.removeprefix("requests."), 0) if resource != "count/pods" else 1000
            if need and used.get(resource, 0) + need > limit:
                figures = f"{resource} {used.get(resource, 0) / 1000:g} of {limit / 1000:g} used, {need / 1000:g} more"
                return str(quota["metadata"]["name"]), f"quota {name(quota)}: {figures} needed"
    return None


def _scoped(quota: Object, template: Object) -> bool:
    """Return whether a quota is for other pods than this one."""
    rules = ((quota["spec"].get("scopeSelector") or {}).get("matchExpressions") or []) + (
        [{"scopeName": scope} for scope in quota["spec"].get("scopes") or []]
    )
    for rule in rules:
        if rule.get("scopeName") != "PriorityClass":
            return True  # not judged: rather no verdict than a wrong one
        if template.get("priorityClassName") not in (rule.get("values") or []):
            return True
    return False


def scheduler(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the pod could have a node at all; that it has none yet is the next link's."""
    item = subject.pod
    if item is None:
        return unknown("there is no pod")
    if node := item["spec"].get("nodeName"):
        return ok(f"{name(item)} is on {node}")
    namespace, own = key_of(item)
    names = {"name": own, "namespace": namespace}
    if gates := item["spec"].get("schedulingGates"):
        return broken("pod-gated", f"{name(item)} has the gates {', '.join(gate['name'] for gate in gates)}", **names)
    verdict = condition(item, "PodScheduled")
    message = one_line(str(verdict.get("message") or ""))
    if verdict.get("status") != "False":
        age = snapshot.age(item)
        evidence = f"the scheduler has said nothing about {name(item)} for {span(age)}"
        return waits(evidence) if age < SETTLES else unknown(evidence, "kubectl -n kube-system get pods")
    if _VOLUME.search(message):
        # A volume that is made for the pod is not there at first.
        evidence = f"the scheduler: {message}"
        return waits(evidence) if snapshot.age(item) < SETTLES else broken("volume-not-bound", evidence, **names)
    if _steers_only(subject):
        return unknown(f"the scheduler: {message}", f"kubectl -n {names['namespace']} describe pod {names['name']}")
    misfit = _misfit(snapshot, subject, item)
    if misfit:
        runbook, evidence = misfit
        return broken(runbook, f"{evidence}; the scheduler: {pods.clause(message)}", **names)
    return ok(
        f"{name(item)} waits for a node: {pods.clause(message) or text(latest(snapshot, item, 'FailedScheduling'))}"
    )


def _misfit(snapshot: Snapshot, subject: Subject, item: Object) -> tuple[str, str] | None:
    """Return why no node of the pool could ever take the pod: from its spec and the stack file alone."""
    fleet, pool = snapshot.fleet, subject.pool
    present = pool_nodes(snapshot, pool)
    labels = nodes.labels(fleet, pool) if fleet.owns_nodes else nodes.gpu_selector(fleet, pool)
    selector = item["spec"].get("nodeSelector") or {}
    own = {key: value for key, value in selector.items() if key in labels or key in _known_keys(snapshot)}
    differs = [f"{key}={value}" for key, value in own.items() if labels.get(key) != value]
    if differs and not any(pods.selects(item, node["metadata"].get("labels") or {}) for node in snapshot.nodes):
        return "selector-matches-no-pool", f"{name(item)} selects {', '.join(differs)}, and no pool or node has that"
    taint = {"key": nodes.TAINT.key, "value": nodes.TAINT.value, "effect": nodes.TAINT.effect}
    if fleet.owns_nodes and not pods.tolerates(item, [taint]):
        return (
            "taint-not-tolerated",
            f"{name(item)} does not tolerate {taint['key']}={taint['value']}:{taint['effect']}",
        )
    requested = pods.requests(item)
    offers = [_offer(snapshot, subject, type_.name) for type_ in pool.types]
    offers += [pods.amounts((node.get("status") or {}).get("allocatable")) for node in present]
    if not any(pods.fits(requested, offer) for offer in offers):
        short = {
            key: amount for key, amount in requested.items() if amount > max(offer.get(key, 0) for offer in offers)
        }
        figures = (
            f"{amount / 1000:g} {key} (largest {_most(offers, key)})"
            for key, amount in (short or requested).items()
            if amount
        )
        together = "" if short else ", and no node has all of it"
        return "pod-too-large", f"{name(item)} requests {', '.join(figures)}{together}"
    return None


def _most(offers: list[dict[str, int]], key: str) -> str:
    return f"{max(offer.get(key, 0) for offer in offers) / 1000:g}"


def _known_keys(snapshot: Snapshot) -> set[str]:
    """Return the labels that the stack file decides: of others, such as zones, nobody knows the values beforehand."""
    fleet = snapshot.fleet
    if not fleet.owns_nodes:
        return set()
    return {POOL, *(key for pool in fleet.pools.values() for key in nodes.labels(fleet, pool))}


def _offer(snapshot: Snapshot, subject: Subject, type_: str) -> dict[str, int]:
    fleet, pool = snapshot.fleet, subject.pool
    instance = next(item for item in pool.types if item.name == type_)
    has = capacity.allocatable(fleet, pool, instance)
    mib = 1024 * 1024 * 1000
    return {
        "cpu": has.cpu_m,
        "memory": has.memory_mib * mib,
        "ephemeral-storage": has.ephemeral_mib * mib,
        "pods": has.pods * 1000,
        nodes.GPU: has.gpus * 1000,
    }
