"""What a cluster has for its users beside nodes and runners: metrics, and the logs of jobs."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from paddock.catalog import eks_addons
from paddock.fleet import nodes
from paddock.fleet.sizing.daemonsets import gpu_node_daemonsets, node_daemonsets
from paddock.labels import POOL
from paddock.plan.cost.fixed import by_use
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import CONFIG_MAP, DAEMON_SET, LOG_GROUP
from tests.support import fleets
from tests.support.fleets import fleet_data, graph

ADDON = "aws:eks/addon:Addon"


def addons(planned: Graph) -> dict[str, Resource]:
    return {addon.inputs["addonName"]: addon for addon in planned.of_type(ADDON)}


@pytest.mark.parametrize("version", sorted(eks_addons()))
def test_a_new_cluster_serves_metrics_from_its_system_nodes(version: str) -> None:
    stack = fleets.stack(fleet_data(cluster={"version": version}))
    addon = addons(plan_graph(stack))["metrics-server"].inputs

    assert addon["addonVersion"] == eks_addons()[version]["metrics-server"]
    assert json.loads(addon["configurationValues"]) == {"nodeSelector": nodes.system_selector(stack.fleet)}


def test_no_metrics_server_where_it_is_off_or_another_owns_it() -> None:
    off: dict[str, Any] = {"version": "1.35", "metricsServer": False}

    assert "metrics-server" not in addons(plan_graph(fleets.stack(fleet_data(cluster=off))))
    assert "metrics-server" not in addons(graph("existing-cluster"))


def only(planned: Graph, type_: str, name: str = "job-logs") -> dict[str, Any]:
    (resource,) = [resource for resource in planned.of_type(type_) if resource.name == name]
    return dict(resource.inputs)


@pytest.fixture
def logs() -> Graph:
    return graph("job-logs")


def test_logs_of_jobs_are_lost_with_their_pods_by_default() -> None:
    assert not graph("smallest").of_type(DAEMON_SET)
    assert not [group for group in graph("smallest").of_type(LOG_GROUP) if group.name == "job-logs"]


def test_logs_of_jobs_go_to_a_group_of_their_own(logs: Graph) -> None:
    group = only(logs, LOG_GROUP)
    (output,) = yaml.safe_load(only(logs, CONFIG_MAP)["data"]["fluent-bit.yaml"])["pipeline"]["outputs"]

    assert (group["name"], group["retentionInDays"]) == ("/paddock/paddock-job-logs/jobs", 365)
    assert group["kmsKeyId"]
    assert (output["log_group_name"], output["region"]) == (group["name"], "us-west-2")
    assert not output["auto_create_group"]


def test_the_role_of_job_logs_writes_to_their_group_alone(logs: Graph) -> None:
    (statement,) = json.loads(only(logs, "aws:iam/rolePolicy:RolePolicy", "job-logs-policy")["policy"])["Statement"]
    association = only(logs, "aws:eks/podIdentityAssociation:PodIdentityAssociation")
    account = only(logs, "kubernetes:core/v1:ServiceAccount")

    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"].endswith(":*")
    assert statement["Resource"] != "*"
    assert (association["namespace"], association["serviceAccount"]) == ("job-logs", account["metadata"]["name"])
    assert not [
        role for role in logs.of_type("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole") if "logs" in role.name
    ]


@pytest.mark.parametrize(("path", "tag"), [
    ("arc-runners_gpu-7xk2p-runner-q8v2c_0f3a/runner/0.log", "arc-runners.gpu-7xk2p-runner-q8v2c.runner"),
    ("arc-runners-privileged_gpu-x_9d/dind/1.log", "arc-runners-privileged.gpu-x.dind"),
    ("kube-system_aws-node-x_9d/aws-node/0.log", None),
    ("arc-runners-of-others_x_9d/runner/0.log", None),
    ("arc-systems_gpu-listener_9d/listener/0.log", None),
    ("arc-runners_gpu-x_9d/runner/0.log.20261123-081500.gz", None),
])  # fmt: skip
def test_only_the_files_of_runner_pods_are_read(logs: Graph, path: str, tag: str | None) -> None:
    (tail,) = yaml.safe_load(only(logs, CONFIG_MAP)["data"]["fluent-bit.yaml"])["pipeline"]["inputs"]
    file = f"/var/log/pods/{path}"
    # Fluent Bit's regular expressions are Ruby's.
    names = re.fullmatch(tail["tag_regex"].replace("(?<", "(?P<"), file)
    read = any(PurePosixPath(file).match(pattern) for pattern in tail["path"].split(","))

    assert read is bool(tag)
    assert not tag or (names and re.sub(r"<(\w+)>", lambda part: names[part[1]], tail["tag"]) == tag)


def test_a_pod_of_logs_runs_wherever_runner_pods_do() -> None:
    """And is counted there, by the same list that sizes runners."""
    for sample, on_system_nodes in (("job-logs", True), ("dind-logs", False)):
        data = fleets.SAMPLES["job-logs"]
        runners = data["runners"] if on_system_nodes else {"gpu": data["runners"]["gpu"]}
        stack = fleets.stack({**data, "runners": runners})
        spec = only(plan_graph(stack), DAEMON_SET)["spec"]["template"]["spec"]
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        keys = {expression["key"] for term in terms for expression in term["matchExpressions"]}
        pool = stack.fleet.pools["t4"]

        assert keys == {POOL, *(["role"] if on_system_nodes else [])}, sample
        assert spec["tolerations"] == [nodes.TAINT.toleration()]
        assert [d.name for d in gpu_node_daemonsets(stack.fleet, pool)].count("fluent-bit") == 1
        assert ("fluent-bit" in {d.name for d in node_daemonsets(stack.fleet)}) is on_system_nodes


def test_the_volume_of_job_logs_is_unknown_and_not_free(logs: Graph) -> None:
    fleet = fleets.named("job-logs").fleet.model_copy(update={"region": "us-east-1"})
    lines = {line.item: line for line in by_use(fleet, logs)}

    assert lines["logs"].price.value == pytest.approx(0.5)
    assert lines["logs"].monthly.value is None


def test_a_driver_that_is_there_is_used_and_not_made() -> None:
    sample = fleets.SAMPLES["existing-cluster"]
    present = {**sample["cluster"], "present": ["aws-ebs-csi-driver"]}
    planned = plan_graph(fleets.stack({**sample, "cluster": present}, "existing-cluster"))
    made = {resource.name for resource in graph("existing-cluster").resources.values()}
    gone = made - {resource.name for resource in planned.resources.values()}
    assert "addons-gp3-encrypted" not in gone
    assert gone == {
        "addons-aws-ebs-csi-driver", "addons-ebs-csi", "addons-ebs-csi-AmazonEBSCSIDriverPolicy",
    }  # fmt: skip


def test_an_existing_cluster_keeps_job_logs_too() -> None:
    data = {**fleets.SAMPLES["existing-cluster"], "logs": {"jobs": {"to": "cloudwatch", "days": 30}}}
    planned = plan_graph(fleets.stack(data))

    assert only(planned, LOG_GROUP)["retentionInDays"] == 30
    assert only(planned, "aws:eks/podIdentityAssociation:PodIdentityAssociation")["clusterName"] == "shared"
