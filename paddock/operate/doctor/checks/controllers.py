"""Controllers, CRDs and namespaces of others in the fleet's cluster: what `pulumi up` would touch, and what of theirs
would touch the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from infra import versions
from paddock.errors import PaddockError
from paddock.fleet import Fleet, KubeconfigCluster, NewCluster, arc, nodes
from paddock.fleet.model.pool import Bottlerocket
from paddock.fleet.model.shared_cluster import Chart
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result, Status
from paddock.operate.inventory import controllers as there
from paddock.operate.inventory.controllers import Program, ScaleSet, Thing, minor
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import Unavailable, split_error
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, RELEASE

AREA = "cluster"
ARC, CRDS, NAMESPACES, OBJECTS, PROGRAMS = there.ARC, "CRDs", "namespaces", "other objects", "GPU software"
_result = partial(Result, area=AREA)
_SETS = "autoscalingrunnersets.actions.github.com"
_GROUPS: Mapping[str, Chart] = {"actions.github.com": "arc", "nfd.k8s-sigs.io": "nfd", "ray.io": "ray"}
"""Keys of `cluster.crds` by API group."""
_OPERATORS = {"PrometheusRule": "prometheusrules", "PodMonitor": "podmonitors"}
"""Kinds that the program makes of CRDs which only Prometheus Operator brings, with their plurals."""
_FOREIGN_LABELS = ("nvidia.com/", "feature.node.kubernetes.io/", "kubernetes.io/")
"""Beginnings of node labels that others set on nodes of ours."""
Check = Callable[[Context, KubernetesReader], Iterator[Result]]


def reading(check: Check) -> Callable[[Context], Iterator[Result]]:
    """Return a check of the cluster's objects: nothing where the cluster is still to be made."""

    def run(context: Context) -> Iterator[Result]:
        if reader := context.shared.get("kubernetes", lambda: _reader(context)):
            yield from check(context, reader)

    return run


def _reader(context: Context) -> KubernetesReader | None:
    """Return the reader of the fleet's cluster; None where there is none yet. Raises Unavailable."""
    fleet, cluster = context.fleet, context.fleet.cluster
    by_file = isinstance(cluster, KubeconfigCluster)
    try:
        if isinstance(cluster, KubeconfigCluster):
            file = context.root / Path(cluster.kubeconfig).expanduser()
            found = kubeconfig.load(file, cluster.context, fleet)
        else:
            found = kubeconfig.load(None, None, fleet)
        if found.named or by_file:
            return KubernetesReader(found)
        error = Unavailable(f"no context of the kubeconfig is of the cluster {fleet.cluster_name}")
    except Unavailable as unread:
        error = unread
    except PaddockError as unread:  # no kubeconfig, or no such context; its fix is a flag, which this command has not
        error = Unavailable(split_error(unread)[0].replace("--context", "cluster.context"))
    if isinstance(cluster, NewCluster) and not _is_made(context):
        return None
    update = f"aws eks update-kubeconfig --name {fleet.cluster_name} --region {fleet.region}"
    error.fix = error.fix or ("cluster.kubeconfig and cluster.context of the stack file" if by_file else update)
    raise error


def _is_made(context: Context) -> bool:
    """Return whether EKS has the cluster; false where it does not say, as another line does."""
    try:
        return context.cluster() is not None
    except Unavailable:
        return False


def namespaces(context: Context, reader: KubernetesReader) -> Iterator[Result]:
    """Check that no namespace of the program is another's: it would be changed, and deleted with the stack."""
    declared = context.graph().of_type(NAMESPACE)
    names = sorted(str(item.inputs["metadata"]["name"]) for item in declared)
    own = fleet_namespaces(context.fleet)
    clean = True
    for name, thing in there.read_namespaces(reader, names).items():
        if thing.of_pulumi:
            continue
        clean = False
        key = "cluster.arc.suffix: paddock" if name in own else ""
        key = "another monitoring.namespace" if name == context.fleet.monitoring.namespace else key
        yield _result(
            status="fail",
            subject=f"namespace {name}",
            message=f"it is there, by {_who(thing)}: pulumi up would put its policies on what is in it, and pulumi "
            "destroy delete that with it",
            fix=key or f"kubectl get all --namespace {name}, then delete it where nothing needs it",
        )
    if clean and names:
        yield _result(status="pass", subject=NAMESPACES, message="those of the stack are not there, or its own")


def objects(context: Context, reader: KubernetesReader) -> Iterator[Result]:
    """Check that no object without a namespace is another's: all have one place for such names."""
    wanted: dict[str, dict[str, str]] = {}
    for item in context.graph().resources.values():
        meta = item.inputs.get("metadata")
        own_check = item.type in (NAMESPACE, CUSTOM_RESOURCE_DEFINITION) or not item.type.startswith("kubernetes:")
        if not own_check and isinstance(meta, Mapping) and meta.get("name") and not meta.get("namespace"):
            wanted.setdefault(item.type, {})[str(meta["name"])] = item.urn
    try:
        held = {resource.urn for resource in context.state()}
    except Unavailable:
        held = None
    clean, renamed = True, context.fleet.cluster.arc.named(arc.NODE_MARK)
    for type_, urns in wanted.items():
        for name, thing in there.read_objects(reader, type_, sorted(urns)).items():
            if urns[name] in held if held is not None else thing.of_pulumi:
                continue
            clean, kind = False, type_.rpartition(":")[2]
            known = "it is there" if held is None else "it is there and not in this stack's state"
            message = f"{known}, by {_who(thing)}: pulumi up writes into it or stops at it, and destroy removes it"
            if thing.of_pulumi:
                message = f"{known}: another stack has it too, and it goes with the first that goes"
            key = "cluster.arc.suffix: paddock" if name == renamed or kind == "PriorityClass" else ""
            yield _result(
                status="warn" if thing.of_pulumi else "fail",
                subject=f"{kind} {name}",
                message=message,
                fix=key or f"kubectl get {kind.lower()} {name} -o yaml; delete it where nobody needs it",
            )
    if clean and wanted:
        yield _result(status="pass", subject=OBJECTS, message="those of the stack are not there, or its own")


def fleet_namespaces(fleet: Fleet) -> set[str]:
    """Return the namespaces whose names follow `cluster.arc.suffix`."""
    return {*arc.namespaces(fleet), *arc.systems(fleet), fleet.cluster.arc.systems}


def crds(context: Context, reader: KubernetesReader) -> Iterator[Result]:
    """Check that no CRD of others is changed without a key that says so, and that those which are kept do."""
    graph = context.graph()
    made = [item.inputs["metadata"]["name"] for item in graph.of_type(CUSTOM_RESOURCE_DEFINITION)]
    operator = {
        f"{plural}.monitoring.coreos.com": kind
        for kind, plural in _OPERATORS.items()
        if any(item.inputs.get("kind") == kind for item in graph.resources.values())
    }
    kept = [_SETS] if context.fleet.holds("runners") and context.fleet.crds("arc") == "keep" else []
    found = there.read_crds(reader, [*made, *kept, *operator])
    for group, key in _GROUPS.items():
        names = [name for name in made if name.endswith(f".{group}")]
        if names:
            yield _shared_crds(context, reader, group, key, [found[name] for name in names if name in found])
    for name in kept:
        yield _kept_crd(found.get(name))
    if absent := [kind for name, kind in operator.items() if name not in found]:
        yield _result(
            status="fail",
            subject=f"{CRDS} of monitoring.coreos.com",
            message=f"the cluster knows no {' and no '.join(absent)}, which the stack makes",
            fix="install Prometheus Operator, or leave monitoring.rules and monitoring.serviceMonitor out",
        )


def _shared_crds(context: Context, reader: KubernetesReader, group: str, key: Chart, found: Sequence[Thing]) -> Result:
    result = partial(_result, subject=f"{CRDS} of {group}")
    others = [thing for thing in found if not thing.of_pulumi]
    if not others:
        return result(status="pass", message="this stack's own" if found else "not there yet")
    who = ", ".join(dict.fromkeys(_who(thing) for thing in others))
    if context.fleet.crds(key) == "replace":
        if getattr(context.fleet.cluster.crds, key):
            return result(status="warn", message=f"they are there, by {who}, and pulumi up replaces them: cluster.crds")
        message = f"they are there, by {who}, and pulumi up would replace them"
        fix = f"cluster.crds: {{{key}: keep}} where they are of the same version, or {{{key}: replace}} to take them"
        return result(status="fail", message=message, fix=fix)
    known = {program.version for program in _of_others(context, reader, there.ARC)} if key == "arc" else set()
    message = f"they are there, by {who}; where one differs from this stack's, pulumi up stops and changes none"
    fix = f"cluster.crds: {{{key}: keep}} leaves them, {{{key}: replace}} takes them over"
    if known == {versions.ARC}:
        return result(status="pass", message=f"they are there, by {who}, with a controller of {versions.ARC}, as ours")
    if key == "arc":
        with_ = f"with a controller of {', '.join(sorted(known))}" if known else "without a controller"
        message = f"they are there, by {who}, {with_}, and this stack's are of {versions.ARC}: pulumi up stops at them"
        return result(status="fail", message=message, fix=fix)
    return result(status="warn", message=message, fix=fix)


def _kept_crd(thing: Thing | None) -> Result:
    result = partial(_result, subject=f"{CRDS} of actions.github.com")
    if thing is None:
        message = "they are not there, and the stack does not bring them"
        return result(status="fail", message=message, fix="install ARC's controller, or cluster.crds: {arc: share}")
    if not thing.knows_labels:
        message = "they are of a version before 0.14, and drop the labels of scale sets: no job would find its runner"
        fix = "upgrade them with their controller, or cluster.crds: {arc: replace}"
        return result(status="fail", message=message, fix=fix)
    return result(status="pass", message=f"they are there, by {_who(thing)}, and stay as they are")


def runner_controllers(context: Context, reader: KubernetesReader) -> Iterator[Result]:
    """Check that no scale set has two controllers, nor one of another minor version, which deletes it."""
    fleet = context.fleet
    others = _of_others(context, reader, there.ARC)
    own = set(arc.namespaces(fleet))
    # In a namespace that the stack did not make, scale sets are another's, though the stack's would be there too.
    taken = {name for name, thing in there.read_namespaces(reader, sorted(own)).items() if not thing.of_pulumi}
    sets = [one for one in there.read_scale_sets(reader) if one.namespace not in own - taken]
    if fleet.controller_of_others:
        yield _theirs(fleet, others, fleet.controller_of_others)
        return
    seeing = [one for one in others if not _watches(one) or _watches(one) in own]
    for one in seeing:
        place = next(iter(sorted(own)))
        yield _result(
            status="fail",
            subject=ARC,
            message=f"{one.title} sees {'every namespace' if not _watches(one) else _watches(one)}, and so this "
            f"fleet's scale sets: two controllers would work on each{_deletes(one)}",
            fix=f"flags.watchSingleNamespace in its chart (not {place}), or "
            f"cluster.arc.controller: {one.namespace}/{one.account}, where it is of {'.'.join(minor(versions.ARC))}",
        )
    seen = sets if fleet.controller == "everywhere" else [one for one in sets if one.namespace in own]
    if seen:
        keys = {"suffix": "paddock"} if taken else {}
        keys |= {"controller": "own"} if fleet.controller == "everywhere" else {}
        yield _seen_by_ours(seen, others, ", ".join(f"{key}: {value}" for key, value in keys.items()))
    elif not seeing:
        message = f"{', '.join(one.title for one in others)} and this stack's see different namespaces"
        yield _result(status="pass", subject=ARC, message=message if others else "no other controller is there")
    for one in _of_others(context, reader, there.LEGACY_ARC):
        message = f"{one.title} has kinds of its own, which nothing of this stack touches"
        yield _result(status="pass", subject=there.LEGACY_ARC, message=message)


def _seen_by_ours(sets: Sequence[ScaleSet], others: Sequence[Program], keys: str) -> Result:
    result = partial(_result, subject="scale sets of others", fix=f"cluster.arc: {{{keys}}}")
    foreign = [one for one in sets if minor(one.version) != minor(versions.ARC)]
    if foreign:
        message = f"this stack's controller, {versions.ARC}, would delete {_titles(foreign)}: of another minor version"
        return result(status="fail", message=message)
    if others:
        return result(status="fail", message=f"this stack's controller, too, would work on {_titles(sets)}")
    return result(status="warn", message=f"this stack's controller serves {_titles(sets)}, and stops with the stack")


def _theirs(fleet: Fleet, others: Sequence[Program], named: tuple[str, str]) -> Result:
    result, title = partial(_result, subject=ARC), "/".join(named)
    one = next((one for one in others if (one.namespace, one.account) == named), None)
    if one is None:
        there_ = ", ".join(f"{one.namespace}/{one.account}" for one in others)
        message = f"no controller has the service account {title}"
        return result(status="fail", message=message, fix=f"cluster.arc.controller: {there_ or 'own'}")
    places = set(arc.controllers(fleet))
    if minor(one.version) != minor(versions.ARC):
        message = f"{one.title} deletes scale sets of {versions.ARC}, which are of another minor version"
        fix = f"upgrade it to {versions.ARC}, or cluster.arc.controller: own, and its chart watchSingleNamespace"
        return result(status="fail", message=message, fix=fix)
    if (watched := _watches(one)) and {watched} != places:
        message = f"{one.title} sees {watched} alone, and the scale sets are in {', '.join(sorted(places))}"
        return result(status="fail", message=message, fix="cluster.arc.controller: own")
    return result(status="pass", message=f"{one.title} serves this stack's scale sets")


def programs(context: Context, reader: KubernetesReader) -> Iterator[Result]:
    """Check that what the stack installs on nodes and for Ray is not there already."""
    fleet = context.fleet
    found: set[str] = set()
    releases = _releases(context)
    all_ = context.shared.get("programs", lambda: there.read_programs(reader))
    for place, name in sorted({one.release for one in all_ if not releases.get(one.release, True)}):
        found.add(there.HELM)
        yield _result(
            status="fail",
            subject=f"{there.HELM} {place}/{name}",
            message="a release of this name is there and not in this stack's state: pulumi up fails at its own",
            fix=f"helm uninstall {name} --namespace {place}, where nobody needs it",
        )
    for kind, condition, message, fix in _rows(fleet):
        if not condition or (kind == there.GPU_OPERATOR and there.DEVICE_PLUGIN in found):
            continue
        for one in _of_others(context, reader, kind):
            if kind in (there.DEVICE_PLUGIN, there.DCGM_EXPORTER) and not _on_our_nodes(fleet, one):
                continue
            if kind == there.KUBERAY and one.flag("watch-namespace"):
                continue
            found.add(kind)
            status: Status = "warn" if kind == there.AUTOSCALER else "fail"
            yield _result(status=status, subject=kind, message=f"{one.title} is there: {message}", fix=fix)
    plugins = [one for kind in (there.DEVICE_PLUGIN, there.GPU_OPERATOR) for one in _of_others(context, reader, kind)]
    needed = any(not isinstance(fleet.ami(pool), Bottlerocket) for pool in fleet.pools.values())
    if not fleet.installs_device_plugin and needed and not plugins:
        found.add(there.DEVICE_PLUGIN)
        message = "none is there, and the stack brings none: no pod would get a GPU"
        yield _result(status="fail", subject=there.DEVICE_PLUGIN, message=message, fix="cluster.devicePlugin: own")
    if not found:
        yield _result(status="pass", subject=PROGRAMS, message="nothing of others does what the stack's would")


def _rows(fleet: Fleet) -> Iterator[tuple[str, bool, str, str]]:
    """Kinds of programs, whether the stack installs one too, what two of them do, and what ends it."""
    yield (
        there.DEVICE_PLUGIN,
        fleet.installs_device_plugin,
        "with this stack's, two would claim the GPUs of a node",
        "cluster.devicePlugin: theirs, or keep it off the stack's GPU nodes",
    )
    yield (
        there.GPU_OPERATOR,
        fleet.installs_device_plugin,
        "it puts a device plugin on every GPU node, and with this stack's, two would claim the GPUs",
        "cluster.devicePlugin: theirs",
    )
    yield (
        there.DCGM_EXPORTER,
        fleet.monitoring.enabled and not fleet.monitoring.host_engine,
        "with this stack's, a node has two DCGM engines, which NVIDIA does not support",
        "monitoring.enabled: false; or monitoring.hostEngine: true, where both ask the node's own engine",
    )
    yield (
        there.AUTOSCALER,
        fleet.owns_nodes,
        "it resizes this stack's groups, too, where its discovery tags or names fit them",
        "see its --node-group-auto-discovery: eks:cluster-name and k8s.io/cluster-autoscaler tags fit every group",
    )
    yield (
        there.KUBERAY,
        bool(fleet.served),
        "it sees every namespace, and so this stack's RayService: two operators would work on it",
        "watchNamespace in its chart, without serving",
    )


def _on_our_nodes(fleet: Fleet, one: Program) -> bool:
    """Return whether a DaemonSet may have pods on the stack's GPU nodes; those of others may all be meant."""
    if not fleet.owns_nodes:
        return True
    if not one.bears(nodes.TAINT.toleration()):
        return False
    return any(
        all(
            key.startswith(_FOREIGN_LABELS) or nodes.labels(fleet, pool).get(key) == value
            for key, value in one.selects.items()
        )
        for pool in fleet.pools.values()
    )


def _of_others(context: Context, reader: KubernetesReader, kind: str) -> list[Program]:
    """Return the programs of a kind that are not this stack's own. Raises Unavailable."""
    found, releases = context.shared.get("programs", lambda: there.read_programs(reader)), _releases(context)
    marks = kind in (there.DEVICE_PLUGIN, there.DCGM_EXPORTER)

    def own(one: Program) -> bool:
        # A release of the same name in kube-system may be another team's; the stack's own carries its labels.
        return releases.get(one.release, False) and (one.marked or not marks)

    return [one for one in found if one.kind == kind and not own(one)]


def _releases(context: Context) -> dict[tuple[str, str], bool]:
    """Return the Helm releases that the stack makes, and whether its state has each; True where that is not known."""
    releases = context.graph().of_type(RELEASE)
    made = {(str(item.inputs.get("namespace")), str(item.inputs.get("name"))): item for item in releases}
    try:
        held = [item for item in context.state() if item.type == RELEASE]
    except Unavailable:
        return dict.fromkeys(made, True)
    known = {item.urn for item in held} | {item.id for item in held}
    return {names: not known.isdisjoint((item.urn, "/".join(names))) for names, item in made.items()}


def _watches(one: Program) -> str:
    return one.flag("watch-single-namespace")


def _deletes(one: Program) -> str:
    if not one.version or minor(one.version) == minor(versions.ARC):
        return ""
    return f", and it deletes those of {versions.ARC}, another minor version than its own"


def _titles(sets: Sequence[ScaleSet]) -> str:
    shown = ", ".join(one.title for one in sets[:5])
    return f"{shown} and {len(sets) - 5} more" if len(sets) > 5 else shown


def _who(thing: Thing) -> str:
    return thing.managers[0] if thing.managers else "somebody"
