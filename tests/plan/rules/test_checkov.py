"""The planned graph as a Terraform plan, read by checkov: a second opinion that shares no line with our rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from paddock.plan.engine.graph import Graph
from paddock.plan.rules import RULES
from tests.plan.rules.breaking import REMOVED, drop, put, statement
from tests.support import fleets
from tests.support import terraform_plan as terraform

CHECKOV = os.environ.get("PADDOCK_CHECKOV") or shutil.which("checkov")  # before the environment is cleaned
needs_checkov = pytest.mark.skipif(CHECKOV is None, reason="no checkov on PATH or in PADDOCK_CHECKOV")

ACCEPTED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("CKV_AWS_39", "aws_eks_cluster.cluster-eksCluster"): ("PAD003",
     "the public endpoint is on for the networks in the stack file; CKV_AWS_38, which looks at those, passes"),
    ("CKV_AWS_339", "aws_eks_cluster.cluster-eksCluster"): ("PAD004",
     "the newest minor in standard support, by the catalogue's dates; this checkov ends at an earlier one"),
    **{(check, "aws_iam_role_policy.cluster-node-policy"): ("PAD019",
        "the Session Manager's agent: AWS's own policies for it have no resource either") for check in ("CKV_AWS_290",
        "CKV_AWS_355")},
}  # fmt: skip
"""(check, resource) -> the rule of ours that looks at the same, and why checkov's answer is accepted."""

BROKEN: list[tuple[set[str], Callable[[Graph], Graph]]] = [
    ({"CKV_AWS_58"}, put("Cluster", "cluster-eksCluster", "encryptionConfig", REMOVED)),
    ({"CKV_AWS_37"}, put("Cluster", "cluster-eksCluster", "enabledClusterLogTypes", ["api"])),
    ({"CKV_AWS_38"}, put("Cluster", "cluster-eksCluster", "vpcConfig/publicAccessCidrs", ["0.0.0.0/0"])),
    ({"CKV_AWS_130"}, put("Subnet", "network-private-us-west-2a", "mapPublicIpOnLaunch", True)),
    ({"CKV_AWS_79"}, put("LaunchTemplate", "t4", "metadataOptions/httpTokens", "optional")),
    ({"CKV_AWS_341"}, put("LaunchTemplate", "l4", "metadataOptions/httpPutResponseHopLimit", 2)),
    ({"CKV_AWS_100"}, put("NodeGroup", "t4-spot", "remoteAccess", {"ec2SshKey": "ops"})),
    ({"CKV_AWS_260", "CKV_AWS_24"}, put("SecurityGroup", "network-endpoints", "ingress/0", {"protocol": "tcp",
     "fromPort": 0, "toPort": 100, "cidrBlocks": ["0.0.0.0/0"], "description": "All"})),
    ({"CKV_AWS_382"}, put("SecurityGroup", "gpu-ami-builder", "egress/0", {"protocol": "-1", "fromPort": 0, "toPort": 0,
     "cidrBlocks": ["0.0.0.0/0"], "description": "All"})),
    ({"CKV2_AWS_11"}, drop("FlowLog", "network-flow")),
    ({"CKV2_AWS_12"}, drop("DefaultSecurityGroup", "network-default-sg")),
    ({"CKV_AWS_51"}, put("Repository", "registry-runner-gpu", "imageTagMutability", "MUTABLE")),
    ({"CKV_AWS_163"}, put("Repository", "registry-runner-gpu", "imageScanningConfiguration/scanOnPush", False)),
    ({"CKV_AWS_136"}, put("Repository", "registry-runner-gpu", "encryptionConfigurations/0",
     {"encryptionType": "AES256"})),
    ({"CKV_AWS_7"}, put("Key", "registry", "enableKeyRotation", False)),
    ({"CKV_AWS_33"}, put("Key", "gpu-ami", "policy", statement(Principal={"AWS": "*"}))),
    ({"CKV_AWS_63"}, put("RolePolicy", "autoscaler-policy", "policy", statement(Action="*", Resource="*"))),
    ({"CKV_AWS_60"}, put("Role", "autoscaler", "assumeRolePolicy", statement(Principal={"AWS": "*"}))),
    ({"CKV_AWS_66"}, put("LogGroup", "network-flow", "retentionInDays", REMOVED)),
    ({"CKV_AWS_338"}, put("LogGroup", "cluster-logs", "retentionInDays", 30)),
    ({"CKV_AWS_158"}, put("LogGroup", "network-flow", "kmsKeyId", REMOVED)),
]  # fmt: skip


def _checkov(graph: Graph, folder: Path) -> tuple[int, set[tuple[str, str]]]:
    """Resources that checkov saw, and the checks that failed."""
    file = folder / "plan.json"
    file.write_text(json.dumps(terraform.plan(graph)), encoding="utf-8")
    command = [
        str(CHECKOV),
        "--file",
        str(file),
        "--framework",
        "terraform_plan",
        "--skip-download",
        "--quiet",
        "--compact",
        "--output",
        "json",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180).stdout
    report: dict[str, Any] = json.loads(output)
    failed = report.get("results", {}).get("failed_checks", [])
    return report["summary"]["resource_count"] if "summary" in report else report["resource_count"], {
        (check["check_id"], check["resource"]) for check in failed
    }


@pytest.mark.e2e
@needs_checkov
@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_checkov_agrees(name: str, tmp_path: Path) -> None:
    graph = fleets.graph(name)
    checked, failed = _checkov(graph, tmp_path)
    assert checked == len(terraform.convertible(graph)) > 0
    assert failed == set(ACCEPTED)


@pytest.mark.e2e
@needs_checkov
def test_checkov_sees_what_is_broken(tmp_path: Path) -> None:
    graph = reduce(lambda graph_, breaking: breaking[1](graph_), BROKEN, fleets.graph("prod"))
    _, failed = _checkov(graph, tmp_path)
    assert set().union(*(checks for checks, _ in BROKEN)) <= {check for check, _ in failed}


def test_what_is_accepted_is_a_rule_of_ours_too() -> None:
    for (check, _), (rule, why) in ACCEPTED.items():
        assert check in RULES[rule].equivalents
        assert len(why) > 20


def test_every_check_broken_here_has_a_rule() -> None:
    covered = {equivalent for rule in RULES.values() for equivalent in rule.equivalents}
    assert set().union(*(checks for checks, _ in BROKEN)) <= covered


def test_a_plan_names_every_aws_resource_once() -> None:
    graph = fleets.graph("prod")
    plan = terraform.plan(graph)
    addresses = [item["address"] for item in plan["planned_values"]["root_module"]["resources"]]
    assert len(set(addresses)) == len(addresses) == len(terraform.convertible(graph)) > 100


@pytest.mark.parametrize(("pulumi", "expected"), [
    ("aws:ec2/launchTemplate:LaunchTemplate", "aws_launch_template"),
    ("aws:eks/nodeGroup:NodeGroup", "aws_eks_node_group"),
    ("aws:cloudwatch/logGroup:LogGroup", "aws_cloudwatch_log_group"),
    ("aws:iam/openIdConnectProvider:OpenIdConnectProvider", "aws_iam_openid_connect_provider"),
    ("aws:kms/key:Key", "aws_kms_key"),
])  # fmt: skip
def test_types_have_terraforms_names(pulumi: str, expected: str) -> None:
    assert terraform.terraform_type(pulumi) == expected


def test_secrets_and_unknown_values_never_reach_the_plan() -> None:
    text = json.dumps(terraform.plan(fleets.graph("prod", preview=True)))
    assert "<unknown>" not in text
