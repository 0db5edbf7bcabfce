"""The real cluster-autoscaler, with the arguments and priorities of our release, on our managed node groups.

It is what the lab's stand-in stands in for, so both are asked the same. EC2 is moto, whose instances become nodes here;
the API server and the scheduler are real.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.console.progress import Progress
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import programs, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import boot, nodes, scaling
from paddock.lab.simulators.scaling import Group
from tests.support import fleets
from tests.support.kubernetes import ENDS_AFTER, gpu_nodes, of_kind, reread, runner, runners, waits
from tests.support.terraform_run import MOTO, moto
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster-autoscaler")]

NAMESPACE, REGION = "arc-runners", "us-west-2"
FASTER = {
    "scan-interval": "1s",
    "scale-down-unneeded-time": "5s",
    "scale-down-delay-after-add": "1s",
    "max-node-provision-time": "75s",
}
"""The same decisions, sooner. AWS is asked once a minute for its instances, and no node is known to it before."""


class Ec2:
    """Auto Scaling groups in moto, and the kubelets of their instances."""

    def __init__(
        self, url: str, cluster: str, groups: Mapping[str, Group], types: Mapping[str, tuple[str, ...]]
    ) -> None:
        import boto3

        keys = {"region_name": REGION, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
        self.groups, self.scaling = groups, boto3.client("autoscaling", endpoint_url=url, **keys)
        eks = boto3.client("eks", endpoint_url=url, **keys)
        role = "arn:aws:iam::123456789012:role/eks"
        self.mute: set[str] = set()
        """Groups whose instances never become nodes."""
        ec2 = boto3.client("ec2", endpoint_url=url, **keys)
        image = ec2.describe_images()["Images"][0]["ImageId"]
        subnets = [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]]
        eks.create_cluster(name=cluster, roleArn=role, resourcesVpcConfig={"subnetIds": subnets[:2]})
        for name, group in groups.items():
            eks.create_nodegroup(
                clusterName=cluster,
                nodegroupName=group.name,
                nodeRole=role,
                subnets=subnets,
                labels=dict(group.labels),
                taints=[dict(taint) for taint in group.taints],
                tags=dict(group.tags),
            )
            template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": image})
            tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
            # As EKS makes and tags them for a managed node group.
            tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": group.name}
            self.scaling.create_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=group.min,
                MaxSize=group.max,
                VPCZoneIdentifier=",".join(subnets),
                MixedInstancesPolicy={
                    "LaunchTemplate": {
                        "LaunchTemplateSpecification": {
                            "LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"],
                            "Version": "1",
                        },
                        "Overrides": [{"InstanceType": type_} for type_ in types[group.pool]],
                    }
                },
                Tags=[{"Key": key, "Value": value, **tag} for key, value in tags.items()],
            )

    def step(self, api: Api) -> None:
        """Create nodes of new instances, and delete those of ended ones."""
        groups = self.scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
        instances = {
            i["InstanceId"]: (group_["AutoScalingGroupName"], i) for group_ in groups for i in group_["Instances"]
        }
        there = {node["metadata"]["name"] for node in gpu_nodes(api)}
        for name in there - set(instances):
            nodes.shrink(api, name)
        for name, (group, instance) in instances.items():
            if name not in there and group not in self.mute:
                node = nodes.named(self.groups[group].node, name)
                node["spec"]["providerID"] = f"aws:///{instance['AvailabilityZone']}/{name}"
                api.create(boot.registered(node))


class World:
    """Cluster, EC2 simulator and log, as the tests read them."""

    def __init__(self, api: Api, ec2: Ec2, log: Path) -> None:
        self.api, self.ec2, self.log = api, ec2, log

    def groups_of_nodes(self) -> Counter[str]:
        return Counter(map(scaling.group_of, gpu_nodes(self.api)))

    def is_empty(self) -> bool:
        return not gpu_nodes(self.api)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, control_plane_programs: None) -> Iterator[World]:
    binary = programs.locate(["cluster-autoscaler"]).get("cluster-autoscaler")
    if not binary:
        pytest.skip("cluster-autoscaler is not here (on PATH, or in PADDOCK_LAB_BIN)")
    if not MOTO:
        pytest.skip("no moto server is here (moto_server on PATH, or PADDOCK_MOTO_SERVER)")
    fleet, graph = fleets.example("prod").fleet, fleets.graph("prod")
    groups = {f"eks-{group.name}-0a1b2c3-5ac0d7b6": group for group in nodes.groups(fleets.example("prod"), graph)}
    folder = tmp_path_factory.mktemp("lab")
    with ExitStack() as stack:
        stack.callback(servers.down, folder)
        lab, _ = servers.up(folder, progress=Progress(quiet=True))
        api = stack.enter_context(lab_api(lab.kubeconfig))
        url = stack.enter_context(moto(tmp_path_factory.mktemp("moto")))
        ec2 = Ec2(url, fleet.cluster_name, groups, {name: pool.instances for name, pool in fleet.pools.items()})
        for node in nodes.system_nodes(fleet):
            api.create(node)
        # The stand-in leaves the groups alone, and still plays cloud and device plugin.
        nodes.configure_autoscaler(
            lab, [replace(group, managed=False, plugin_seconds=2.0) for group in groups.values()]
        )
        kinds = ("Namespace", "PriorityClass", "ServiceAccount")
        for object_ in (*(object_ for kind in kinds for object_ in of_kind(graph, kind)), *_model_cache()):
            api.apply(object_)
        until(lambda: api.find("v1", "ServiceAccount", "default", NAMESPACE))
        stack.enter_context(_running(ec2, lab))
        release = next(r for r in graph.of_type("kubernetes:helm.sh/v3:Release") if r.name == "autoscaler")
        log = folder / "cluster-autoscaler.log"
        stack.enter_context(_autoscaler(binary, lab, release.inputs["values"], url, log))
        yield World(api, ec2, log)


def test_every_runner_gets_the_nodes_of_the_simulator(world: World) -> None:
    fleet = fleets.example("prod").fleet
    api, created = world.api, []
    for pod in runners(fleet):
        if pod["spec"].get("tolerations"):  # not those that only steer
            pod["metadata"]["annotations"][ENDS_AFTER] = "5s"
            created.append(pod)
    pending = [{**pod, "status": {"conditions": [_UNSCHEDULABLE]}} for pod in created]
    expected = Counter(scaling.decide(tuple(world.ec2.groups.values()), [], pending).grow)
    for pod in created:
        api.create(pod)
    most: Counter[str] = Counter()

    def all_done() -> bool:
        nonlocal most
        most |= world.groups_of_nodes()
        return all(reread(api, pod)["status"]["phase"] == "Succeeded" for pod in created)

    until(all_done, seconds=120)
    assert most == expected, "the stand-in buys something else, or the tags promise something else"
    assert "seems to have unready GPU" in world.log.read_text(), "it never had to wait for a device plugin"
    until(world.is_empty, seconds=180)


def test_a_runner_without_its_toleration_buys_nothing(world: World) -> None:
    pod = runner(fleets.example("prod").fleet, "gpu", "intolerant")
    pod["spec"]["tolerations"] = []
    world.api.create(pod)
    until(lambda: waits(world.api, pod))
    refused = re.compile(r"intolerant can't be scheduled on eks-t4-spot-\S+ .*TaintToleration")
    until(lambda: refused.search(world.log.read_text()), seconds=60)  # a pod with GPUs is let wait for 30 s first
    assert world.is_empty()
    world.api.delete(pod, gracePeriodSeconds="0")


def test_spot_that_does_not_come_is_replaced_by_on_demand(world: World) -> None:
    world.ec2.mute = {name for name, group in world.ec2.groups.items() if group.name == "t4-spot"}
    pod = world.api.create(runner(fleets.example("prod").fleet, "gpu", "late"))
    name = until(lambda: reread(world.api, pod)["spec"].get("nodeName"), seconds=300)
    assert scaling.group_of(world.api.get("v1", "Node", name)) == "t4-on-demand"
    assert re.search(r"eks-t4-spot-\S+ is not ready for scaleup - backoff", world.log.read_text())


_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def _model_cache() -> list[Object]:
    """Return the claim that one of prod's runners mounts, bound."""
    size = {"storage": "1Gi"}
    spec: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    claim = {"name": "model-cache", "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "model-cache"},
            "spec": {**spec, "capacity": size, "hostPath": {"path": "/models"}, "claimRef": claim},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claim,
            "spec": {**spec, "resources": {"requests": size}, "volumeName": "model-cache"},
        },
    ]


@contextmanager
def _running(ec2: Ec2, lab: Lab) -> Iterator[None]:
    """Plays EC2 while the tests run."""
    ended = threading.Event()

    def play() -> None:
        with lab_api(lab.kubeconfig) as api:
            while not ended.wait(0.5):
                ec2.step(api)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _autoscaler(binary: Path, lab: Lab, values: Mapping[str, Any], url: str, log: Path) -> Iterator[None]:
    """cluster-autoscaler as its chart would start it, outside the cluster and against moto."""
    with lab_api(lab.kubeconfig) as api:
        priorities = {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}
        data = {"priorities": values["expanderPriorities"]}
        api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": priorities, "data": data})
    cloud = log.with_suffix(".conf")
    cloud.write_text("".join(_OVERRIDE.format(service=service, url=url) for service in ("autoscaling", "ec2", "eks")))
    tags = ",".join(values["autoDiscovery"]["tags"])
    options = {
        "cloud-provider": "aws",
        "node-group-auto-discovery": f"asg:tag={tags}",
        **values["extraArgs"],
        "namespace": "kube-system",
        "kubeconfig": lab.kubeconfig,
        "cloud-config": cloud,
        "aws-use-static-instance-list": True,
        "leader-elect": False,
        "address": "127.0.0.1:0",
        "v": 4,
        **FASTER,
    }
    command = [str(binary), *(f"--{key}={_flag(value)}" for key, value in options.items())]
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": REGION}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={"PATH": os.defpath, **keys})
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


_OVERRIDE = """[ServiceOverride "{service}"]
Service = {service}
Region = us-west-2
URL = {url}
SigningRegion = us-west-2
SigningMethod = v4
SigningName = {service}
"""


def _flag(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return int(value)
        case _:
            return value
