"""From a node that is there to one that offers its GPUs: the node itself, and NVIDIA's device plugin."""

from __future__ import annotations

import re
from datetime import timedelta

from paddock.errors import one_line
from paddock.fleet import nodes
from paddock.kubernetes import pods
from paddock.labels import BOTTLEROCKET, DEVICE_PLUGIN, DRAINED, REPLACE
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.why.links.capacity import BOOTS, blamed_nodes, joins_never
from paddock.operate.why.links.evidence import condition, latest, phase, ready, restarts, span, stuck_containers, text
from paddock.operate.why.links.given_up import ADMISSION, evicted, reason_of, too_full
from paddock.operate.why.objects import annotations_of, gpus_of, key_of, node_named
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject

_PLUGIN_SETTLES = timedelta(minutes=3)
_START_UP = ("node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready")
TAKEN_BACK = ("SpotInterruption", "SpotInterrupted", "InstanceSpotInterruption", "PreemptScheduled")
"""Reasons of events on a node that is being taken back: of aws-node-termination-handler, of Karpenter, now and before,
and of AKS. A managed node group of EKS writes none of them: it drains the node without a word."""
INTERRUPTED = (*TAKEN_BACK, "RebalanceRecommendation", "SpotRebalanceRecommendation")
"""These, and those on a node that may be taken back soon."""
_SHARES = re.compile(r"maximum request size for shared resources")
_NO_NETWORK = re.compile(r"NetworkPluginNotReady|cni (?:plugin not|config un)initialized")
_PLUGIN = re.compile(r"nvidia.*device-plugin")
_BESIDE_IT = re.compile(r"node-feature-discovery|gpu-feature-discovery|mps-control-daemon")


def node(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge the pod's node, or the pool's nodes that do not take it."""
    item = subject.pod
    if not snapshot.nodes.known:
        return unread(snapshot.nodes, "nodes")
    if item is None:
        return _given_up(subject) or unknown("there is no pod")
    here = item["spec"].get("nodeName")
    if here:
        return _node_of(snapshot, subject, item, str(here))
    verdicts = [_verdict(snapshot, subject, node) for node in blamed_nodes(snapshot, subject)]
    if not verdicts:
        if never := joins_never(snapshot, subject):
            return broken("node-never-joined", never[1], instance=never[0])
        return unknown("no node of the pool is there")
    # One that comes up soon is the one that the pod waits for.
    return next((verdict for verdict in verdicts if verdict.status != "broken"), verdicts[0])


def _given_up(subject: Subject) -> Outcome | None:
    """Return why the kubelet refused or ended the pod, where that is the node's affair."""
    reason, message = reason_of(subject)
    about = subject.pod or subject.runner
    if about is None or not (evicted(reason) or too_full(reason)):
        return None
    namespace, own = key_of(about)
    evidence = f"{name(about)}: {reason}: {message or 'no message'}"
    return broken("node-full" if too_full(reason) else "pod-evicted", evidence, name=own, namespace=namespace)


def _node_of(snapshot: Snapshot, subject: Subject, pod: Object, here: str) -> Outcome:
    disruption, over = condition(pod, "DisruptionTarget"), phase(pod) in ("Succeeded", "Failed")
    given_up = _given_up(subject)
    if over and not disruption and not given_up:
        return ok(f"it ran on {here}")
    there = node_named(snapshot, here)
    if there is None:
        return broken("node-gone", f"{name(pod)} is on {here}, which is not in the cluster", name=here)
    notice = next((event for reason in INTERRUPTED if (event := latest(snapshot, there, reason))), None)
    if notice:
        return broken("spot-interrupted", f"{here}: {text(notice)}", name=here)
    if not ready(there):
        return _not_ready(snapshot, there)
    if given_up:
        return given_up
    if disruption:
        message = one_line(f"{disruption.get('reason')}: {disruption.get('message') or ''}")
        namespace, own = key_of(pod)
        return broken("pod-evicted", f"{name(pod)} is taken off {here}: {message}", name=own, namespace=namespace)
    return ok(f"{here} is ready")


def _not_ready(snapshot: Snapshot, item: Object) -> Outcome:
    here, state = str(item["metadata"]["name"]), condition(item, "Ready")
    since = snapshot.since(state.get("lastTransitionTime") or item["metadata"].get("creationTimestamp"))
    message = one_line(str(state.get("message") or state.get("reason") or "it has not reported yet"))
    evidence = f"{here} has not been ready for {span(since)}: {message}"
    young = snapshot.age(item) < BOOTS and (state.get("status") != "Unknown")
    if young:
        return waits(evidence)
    return broken("node-without-network" if _NO_NETWORK.search(message) else "node-not-ready", evidence, name=here)


def _verdict(snapshot: Snapshot, subject: Subject, item: Object) -> Outcome:
    """Return why a node of the pool takes no job; `ok` where only its GPUs lack."""
    spec, here = item["spec"], key_of(item)[1]
    if mark := annotations_of(item).get(REPLACE):
        return broken("node-marked-broken", f"{here} is marked: {one_line(str(mark))}", name=here)
    notice = next((event for reason in INTERRUPTED if (event := latest(snapshot, item, reason))), None)
    if notice:
        return broken("spot-interrupted", f"{here}: {text(notice)}", name=here)
    if not ready(item):
        return _not_ready(snapshot, item)
    for what in ("Disk", "Memory", "PID"):
        pressure = condition(item, f"{what}Pressure")
        if pressure.get("status") == "True":
            message = one_line(str(pressure.get("message") or ""))
            return broken("node-under-pressure", f"{here} has {what}Pressure: {message}", name=here)
    if spec.get("unschedulable") and DRAINED in annotations_of(item):
        return broken("node-drained", f"{here} is drained by runners.drain", name=here, pool=subject.pool.name)
    if spec.get("unschedulable"):
        return broken("node-cordoned", f"{here} is cordoned", name=here)
    own = (nodes.TAINT.key,)
    taints = [
        taint for taint in spec.get("taints") or [] if taint["key"] not in own and taint["effect"] != "PreferNoSchedule"
    ]
    barred = [taint for taint in taints if subject.pod is not None and not pods.tolerates(subject.pod, [taint])]
    for taint in barred:
        evidence = f"{here} has had the taint {taint['key']}:{taint['effect']} for {span(snapshot.age(item))}"
        start_up = taint["key"] in _START_UP or "startup" in taint["key"] or "agent-not-ready" in taint["key"]
        if start_up:
            young = snapshot.age(item) < _PLUGIN_SETTLES
            return waits(evidence) if young else broken("node-uninitialised", evidence, name=here)
        return broken("node-tainted", evidence, name=here, taint=str(taint["key"]))
    return ok(f"{here} is ready")


def device_plugin(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the node offers its GPUs."""
    item, (reason, message) = subject.pod, reason_of(subject)
    about = item or subject.runner
    if reason == ADMISSION and about is not None:
        if _SHARES.search(message):
            return broken("gpu-shares", f"{name(about)}: {message}", pool=subject.pool.name)
        return broken("gpu-admission", f"{name(about)}: {message}", pool=subject.pool.name)
    if item is None:
        return unknown("there is no pod")
    if item["spec"].get("nodeName"):
        gpus = pods.requests(item).get(nodes.GPU, 0) // 1000
        return ok(f"{gpus} of {item['spec']['nodeName']}'s GPUs are the pod's" if gpus else "the pod needs no GPU")
    candidates = [node for node in blamed_nodes(snapshot, subject) if _verdict(snapshot, subject, node).status == "ok"]
    if not candidates:
        return unknown("no node of the pool waits for its GPUs")
    return _plugin_on(snapshot, candidates[0])


def _plugin_on(snapshot: Snapshot, item: Object) -> Outcome:
    here = str(item["metadata"]["name"])
    labels = item["metadata"].get("labels") or {}
    offered, total = gpus_of(snapshot.fleet, item)
    counts_any = pods.amounts((item.get("status") or {}).get("capacity")).get(nodes.GPU, 0)
    if offered:
        evidence = f"{here} offers {offered} of {total} GPUs"
        return broken("gpu-unhealthy", evidence, name=here) if offered < total else ok(evidence)
    if counts_any:
        return broken("gpu-unhealthy", f"{here} offers none of its {total} GPUs", name=here)
    if labels.get(DEVICE_PLUGIN) == BOTTLEROCKET:
        evidence = (
            f"{here} offers no GPU, {span(snapshot.age(item))} after it joined; its image has the plugin built in"
        )
        return (
            waits(evidence) if snapshot.age(item) < _PLUGIN_SETTLES else broken("no-gpus-on-node", evidence, name=here)
        )
    if not snapshot.daemonsets.known:
        return unread(snapshot.daemonsets, "DaemonSets")
    plugins = [daemonset for daemonset in snapshot.daemonsets if is_plugin(daemonset)]
    if not plugins:
        return broken("device-plugin-missing", f"{here} offers no GPU, and no DaemonSet is a device plugin", name=here)
    selecting = [plugin for plugin in plugins if _takes(plugin, item)]
    names = {
        "name": here,
        "namespace": str(plugins[0]["metadata"]["namespace"]),
        "daemonset": str(plugins[0]["metadata"]["name"]),
    }
    if not selecting:
        return broken("device-plugin-passes-node", f"{name(plugins[0])} does not select {here}", **names)
    return _plugin_pod(snapshot, item, selecting, names)


def is_plugin(daemonset: Object) -> bool:
    """Return whether a DaemonSet is NVIDIA's device plugin, and not one of those next to it."""
    own = str(daemonset["metadata"]["name"])
    return bool(_PLUGIN.search(own)) and not _BESIDE_IT.search(own)


def _takes(daemonset: Object, item: Object) -> bool:
    """Return whether a DaemonSet makes a pod for a node."""
    template = {"metadata": {}, "spec": daemonset["spec"]["template"]["spec"]}
    # The controller adds tolerations of the node's own conditions to pods of every DaemonSet.
    taints = [taint for taint in item["spec"].get("taints") or [] if not taint["key"].startswith("node.kubernetes.io/")]
    return pods.selects(template, item["metadata"].get("labels") or {}) and pods.tolerates(template, taints)


def _plugin_pod(snapshot: Snapshot, item: Object, plugins: list[Object], names: dict[str, str]) -> Outcome:
    if not snapshot.pods.known:
        return unread(snapshot.pods, "the device plugin's pod")
    here, own = names["name"], {str(plugin["metadata"]["name"]) for plugin in plugins}
    young = snapshot.age(item) < _PLUGIN_SETTLES
    mine = [pod for pod in snapshot.pods if _is_of(pod, own) and _place(pod) == here]
    if not mine:
        evidence = f"{here} has no pod of {', '.join(sorted(own))}, {span(snapshot.age(item))} after it joined"
        return waits(evidence) if young else broken("device-plugin-no-pod", evidence, **names)
    pod = mine[0]
    names = {**names, "pod": str(pod["metadata"]["name"])}
    for container, reason, message in stuck_containers(pod):
        evidence = f"{name(pod)} on {here}: {reason}: {message}"
        return broken("device-plugin-failing", evidence + f" ({container.get('restartCount', 0)} restarts)", **names)
    if restarts(pod) >= 3 and not ready(pod):
        return broken("device-plugin-failing", f"{name(pod)} on {here} was restarted {restarts(pod)} times", **names)
    if phase(pod) != "Running" or not ready(pod):
        evidence = f"{name(pod)} on {here} is {phase(pod) or 'without phase'}, not ready"
        return waits(evidence) if young else broken("device-plugin-failing", evidence, **names)
    if snapshot.age(pod) < _PLUGIN_SETTLES:
        return waits(
            f"{name(pod)} on {here} has been running for {span(snapshot.age(pod))}, and {here} offers no GPU yet"
        )
    evidence = f"{name(pod)} on {here} has been running for {span(snapshot.age(pod))}, and {here} offers no GPU"
    return broken("no-gpus-on-node", evidence, **names)


def _is_of(pod: Object, daemonsets: set[str]) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner["kind"] == "DaemonSet" and owner["name"] in daemonsets for owner in owners)


def _place(pod: Object) -> str:
    """Return the node of a DaemonSet's pod, also while it has none yet."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or []:
        for rule in term.get("matchFields") or []:
            if rule.get("key") == "metadata.name":
                return str((rule.get("values") or [""])[0])
    return ""
