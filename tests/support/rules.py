"""Rules of every graph, as functions of the fleet and its graph: each yields what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from infra import versions
from paddock.fleet import Fleet, KubeconfigCluster, NewCluster, nodes
from paddock.fleet.model.quantity import parse_cpu, parse_memory
from paddock.fleet.sizing import capacity
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.values import SECRET, Secret, redact

RELEASE = "kubernetes:helm.sh/v3:Release"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
OFFERS = "k8s.io/cluster-autoscaler/node-template/resources/"
PROTECTED = {"aws:ec2/vpc:Vpc", "aws:kms/key:Key", "aws:ecr/repository:Repository", "aws:eks/cluster:Cluster"}

Rule = Callable[[Fleet, Graph], Iterator[str]]


def launch_templates_are_safe(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for template in graph.of_type(TEMPLATE):
        inputs = template.inputs
        options = inputs["metadataOptions"]
        if (options["httpTokens"], options["httpPutResponseHopLimit"]) != ("required", 1):
            yield f"{template.name}: IMDS {options}"
        for device in inputs["blockDeviceMappings"]:
            if (device["ebs"]["encrypted"], device["ebs"]["volumeType"]) != ("true", "gp3"):
                yield f"{template.name}: {device}"
        tagged = {entry["resourceType"]: entry["tags"] for entry in inputs["tagSpecifications"]}
        if not tagged.keys() >= {"instance", "volume"} or any(
            not fleet.tags.items() <= t.items() for t in tagged.values()
        ):
            yield f"{template.name}: tags {tagged}"
        if unsafe := {"keyName", "networkInterfaces", "vpcSecurityGroupIds"} & inputs.keys():
            yield f"{template.name}: {unsafe}"
        if ("imageId" in inputs) != (template.name in fleet.pools and "custom" in repr(fleet.pools[template.name].ami)):
            yield f"{template.name}: an image in the template"


def gpu_groups(fleet: Fleet, graph: Graph) -> Iterator[tuple[str, str, Resource]]:
    """(pool, capacity, node group)."""
    by_name = {group.name: group for group in graph.of_type(NODE_GROUP)}
    for name, pool in fleet.pools.items():
        for kind in nodes.capacities(pool):
            if f"{name}-{kind}" in by_name:
                yield name, kind, by_name[f"{name}-{kind}"]


def gpu_pools_are_tainted_and_scaled(fleet: Fleet, graph: Graph) -> Iterator[str]:
    spelled = {"spot": "SPOT", "on-demand": "ON_DEMAND", "reserved": "ON_DEMAND", "capacity-block": "CAPACITY_BLOCK"}
    groups = list(gpu_groups(fleet, graph))
    if fleet.holds("cluster") and fleet.owns_nodes:
        expected_groups = {f"{name}-{kind}" for name, pool in fleet.pools.items() for kind in nodes.capacities(pool)}
        if missing := expected_groups - {group.name for _, _, group in groups}:
            yield f"no node group {missing}"
    for name, kind, group in groups:
        pool, inputs = fleet.pools[name], group.inputs
        if inputs["taints"] != [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}]:
            yield f"{group.name}: taints {inputs['taints']}"
        sizes, least = inputs["scalingConfig"], pool.nodes.min if kind == nodes.capacities(pool)[0] else 0
        if (sizes["minSize"], sizes["desiredSize"], sizes["maxSize"]) != (least, least, pool.nodes.max):
            yield f"{group.name}: sizes {sizes}"
        if group.ignore_changes != ("scalingConfig.desiredSize",):
            yield f"{group.name}: the autoscaler and Pulumi would both set its size"
        if inputs["capacityType"] != spelled[kind]:
            yield f"{group.name}: {inputs['capacityType']}"
        expected = {**pool.labels, "paddock.dev/pool": name, "role": "gpu", "nvidia.com/gpu.present": "true"}
        if not expected.items() <= inputs["labels"].items():
            yield f"{group.name}: labels {inputs['labels']}"
        own = pool.ami is not None and "custom" in repr(pool.ami)
        if own != (inputs["amiType"] == "CUSTOM") or own == ("releaseVersion" in inputs):
            yield f"{group.name}: an image of its own and one of Amazon's, or neither"


def empty_groups_describe_their_nodes(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for name, _, node_group in gpu_groups(fleet, graph):
        tags, pool = node_group.inputs["tags"], fleet.pools[name]
        if not fleet.tags.items() <= tags.items():
            yield f"{node_group.name}: tags {tags}"
        if not {f"{OFFERS}cpu", f"{OFFERS}memory", f"{OFFERS}ephemeral-storage"} <= tags.keys():
            yield f"{node_group.name}: the autoscaler takes its nodes for larger than they are"
        offered = tags.get(f"{OFFERS}nvidia.com/gpu")
        if offered != str(min(pool.gpu_resources_per_node(instance) for instance in pool.types)):
            yield f"{node_group.name}: {offered} GPUs"


def providers_are_explicit(fleet: Fleet, graph: Graph) -> Iterator[str]:
    providers = {"aws": "pulumi:providers:aws::aws::", "kubernetes": "pulumi:providers:kubernetes::"}
    for resource in graph.resources.values():
        package = resource.type.partition(":")[0]
        if package in providers and (providers[package] not in resource.provider or "eks-k8s" in resource.provider):
            yield f"{resource.name}: provider {resource.provider!r}"
        if package in providers and resource.provider.rpartition("::")[0] not in graph.resources:
            yield f"{resource.name}: a provider that is not there"


def gpu_pods_tolerate_the_taint(fleet: Fleet, graph: Graph) -> Iterator[str]:
    expected = [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    for release in graph.of_type(RELEASE):
        values = release.inputs["values"]
        places = {"device-plugin": [values, values.get("nfd", {}).get("worker", {})], "monitoring": [values]}.get(
            release.name, []
        )
        for place in places:
            if place.get("tolerations") != expected:
                yield f"{release.name}: {place.get('tolerations')}"
    for name, pod in gpu_pods(fleet, graph):
        if pod["spec"].get("tolerations") != expected:
            yield f"{name}: {pod['spec'].get('tolerations')}"


def gpu_pods(fleet: Fleet, graph: Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """(runner, the pod that holds its GPU)."""
    for name, release in scale_sets(graph).items():
        if fleet.runners[name].container != "kubernetes-novolume":
            yield name, release.inputs["values"]["template"]
    for template in graph.of_type("kubernetes:core/v1:ConfigMap"):
        if (
            template.parent.endswith(f"::{template.name.removesuffix('-pod-template')}")
            and "pod.yaml" in template.inputs["data"]
        ):
            yield template.name.removesuffix("-pod-template"), yaml.safe_load(template.inputs["data"]["pod.yaml"])


def scale_sets(graph: Graph) -> dict[str, Resource]:
    """Runner -> its Helm release."""
    return {r.name: r for r in graph.of_type(RELEASE) if "RunnerScaleSet$" in r.urn}


def scale_sets_follow_the_controller(fleet: Fleet, graph: Graph) -> Iterator[str]:
    sets = scale_sets(graph)
    if fleet.holds("runners") and sets.keys() != fleet.runners.keys():
        yield f"scale sets {set(sets)}"
    controllers = [r for r in graph.of_type(RELEASE) if r.inputs["chart"].endswith("-controller")]
    for release in sets.values():
        (controller,) = controllers
        if controller.urn not in behind(release, graph):
            yield f"{release.name}: made before the controller"
        if {release.inputs["version"], controller.inputs["version"]} != {versions.ARC}:
            yield f"{release.name}: not the controller's version"
        account = release.inputs["values"]["controllerServiceAccount"]
        if account["name"] != controller.inputs["values"]["serviceAccount"]["name"]:
            yield f"{release.name}: {account}"


def behind(resource: Resource, graph: Graph) -> set[str]:
    """All that a resource depends on, and what that depends on."""
    names: set[str] = set()
    waiting = list(resource.dependencies)
    while waiting:
        urn = waiting.pop()
        if urn not in names:
            names.add(urn)
            waiting += graph.resources[urn].dependencies
    return names


# Nothing but reading, and AWS gives these no resource to be held to: cluster-autoscaler looks at groups and types, ECR
# gives whoever may push a token first.
_LOOKING = ("Describe", "Get", "List")
_SESSION_MANAGER = ("ssm:UpdateInstanceInformation", "ssmmessages:")
"""Actions of Session Manager on the node itself: AWS's own policy allows them on everything, too."""


def nobody_may_do_everything(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for resource in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
        for statement in json.loads(resource.inputs["policy"])["Statement"]:
            actions, resources = (_list(statement[part]) for part in ("Action", "Resource"))
            if statement["Effect"] != "Allow":
                continue
            if any("*" in action for action in actions):
                yield f"{resource.name}: {actions}"
            if "*" in resources and not all(
                a.partition(":")[2].startswith(_LOOKING) or a.startswith(_SESSION_MANAGER) for a in actions
            ):
                yield f"{resource.name}: {actions} on everything"
    for resource in graph.of_type("aws:iam/role:Role"):
        for statement in json.loads(resource.inputs["assumeRolePolicy"])["Statement"]:
            if "*" in json.dumps(statement["Principal"]) or "*" in json.dumps(statement.get("Condition", {})):
                yield f"{resource.name}: trusts {statement}"


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def secrets_are_wrapped(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for secret in graph.of_type("kubernetes:core/v1:Secret"):
        data = secret.inputs["stringData"]
        keys = {"github_app_private_key", "github_token"}
        if not isinstance(data, Secret) and not any(isinstance(data.get(key), Secret) for key in keys):
            yield f"{secret.name}: in clear text"
    text = json.dumps(redact([resource.inputs for resource in graph.resources.values()]))
    for clear in ("<not decrypted>", "<from AWS>"):
        if clear in text:
            yield f"{clear} is redact"
    if graph.of_type("kubernetes:core/v1:Secret") and SECRET not in text:
        yield "no secret at all"


def what_is_lost_for_ever_is_protected(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for resource in graph.resources.values():
        if resource.protect != (resource.type in PROTECTED):
            yield f"{resource.name}: protect is {resource.protect}"


def labels_are_unique(fleet: Fleet, graph: Graph) -> Iterator[str]:
    label_sets = [frozenset(map(str.lower, r.inputs["values"]["scaleSetLabels"])) for r in scale_sets(graph).values()]
    if len(set(label_sets)) != len(label_sets):
        yield f"{label_sets}"


def runner_pods_find_a_node(fleet: Fleet, graph: Graph) -> Iterator[str]:
    groups = {name: group for name, _, group in gpu_groups(fleet, graph)}
    for name, pod in gpu_pods(fleet, graph):
        runner = fleet.runners[name]
        selector = pod["spec"]["nodeSelector"]
        if runner.pool in groups and not selector.items() <= groups[runner.pool].inputs["labels"].items():
            yield f"{name}: no node of {runner.pool} has {selector}"
        if isinstance(fleet.cluster, KubeconfigCluster) or runner.cpu or runner.memory:
            continue
        # Other init containers run before, and ask for less.
        sidecars = [c for c in pod["spec"].get("initContainers", []) if c.get("restartPolicy") == "Always"]
        containers = [*pod["spec"]["containers"], *sidecars]
        requests = [c["resources"]["requests"] for c in containers if "resources" in c]
        cpu = sum(parse_cpu(request["cpu"]) for request in requests)
        memory = sum(parse_memory(request["memory"]) for request in requests)
        disk = parse_memory(pod["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"])
        pool = fleet.pools[runner.pool]
        for instance in pool.types:
            room = capacity.available(fleet, pool, instance)
            if room.gpus >= runner.gpus and (cpu > room.cpu_m or memory > room.memory_mib or disk > room.ephemeral_mib):
                yield f"{name}: {cpu}m, {memory} MiB, disk {disk} MiB do not fit {instance.name}: {room}"


def pods_are_whole(fleet: Fleet, graph: Graph) -> Iterator[str]:
    for name, pod in gpu_pods(fleet, graph):
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        if len(set(volumes)) != len(volumes):
            yield f"{name}: two volumes of one name in {volumes}"
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])):
            mounts = container.get("volumeMounts", [])
            paths = [mount["mountPath"] for mount in mounts]
            if not {mount["name"] for mount in mounts} <= set(volumes) or len(set(paths)) != len(paths):
                yield f"{name}: mounts {mounts} of {volumes}"
            variables = [variable["name"] for variable in container.get("env", [])]
            if len(set(variables)) != len(variables):
                yield f"{name}: {variables}"


def system_pods_stay_off_gpu_nodes(fleet: Fleet, graph: Graph) -> Iterator[str]:
    selector = {"role": "system"} if isinstance(fleet.cluster, NewCluster) else {}
    for release in graph.of_type(RELEASE):
        values = release.inputs["values"]
        if release.name in ("arc", "autoscaler") and values["nodeSelector"] != selector:
            yield f"{release.name}: {values['nodeSelector']}"
        if "listenerTemplate" in values and values["listenerTemplate"]["spec"]["nodeSelector"] != selector:
            yield f"{release.name}: its listener"


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        launch_templates_are_safe,
        gpu_pools_are_tainted_and_scaled,
        empty_groups_describe_their_nodes,
        providers_are_explicit,
        gpu_pods_tolerate_the_taint,
        scale_sets_follow_the_controller,
        nobody_may_do_everything,
        secrets_are_wrapped,
        what_is_lost_for_ever_is_protected,
        labels_are_unique,
        runner_pods_find_a_node,
        pods_are_whole,
        system_pods_stay_off_gpu_nodes,
    )
}


def broken(fleet: Fleet, graph: Graph) -> dict[str, list[str]]:
    """Rule -> what breaks it."""
    return {name: violations for name, rule in RULES.items() if (violations := list(rule(fleet, graph)))}
