"""An account, a cluster and a GitHub with sixteen things of others in the way: each is named before `pulumi up`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet import Stack, load
from paddock.lab.github.server import Server
from paddock.operate.doctor.command import Doctor, doctor
from tests.operate.conftest import AT, program
from tests.operate.test_doctor_controllers import OLDER, THEIR_ARC, arc, plugin, thing
from tests.operate.test_doctor_there import EMPTY, SHARED, VOLUME, VPC, cluster
from tests.support import kubernetes_api, lab_github
from tests.support.aws_account import NUMBER, Account, answering, healthy
from tests.support.chain_world import World
from tests.support.github_api import private_key
from tests.support.kubernetes_api import KubernetesApi

AUTOSCALER = {"associationId": "a-1", "namespace": "kube-system", "serviceAccount": "cluster-autoscaler"}
DRIVER = {"associationId": "a-2", "namespace": "kube-system", "serviceAccount": "ebs-csi-controller-sa"}
PEOPLE = f"arn:aws:iam::{NUMBER}:role/People"
ALARM = "paddock-paddock-dev-GpuTooHot"
ACCOUNT: dict[str, Any] = {
    **cluster(accessConfig={"authenticationMode": "API"}),
    **EMPTY,
    "logs.DescribeLogGroups": lambda asked: {"logGroups": [{"logGroupName": asked["logGroupNamePrefix"]}]},
    "ecr.DescribeRepositories": lambda asked: {
        "repositories": [{"repositoryName": name} for name in asked["repositoryNames"]]
    },
    "cloudwatch.DescribeAlarms": {"MetricAlarms": [{"AlarmName": ALARM}]},
    "eks.ListAddons": {"addons": ["vpc-cni", "aws-ebs-csi-driver"]},
    "eks.ListPodIdentityAssociations": {"associations": [AUTOSCALER, DRIVER]},
    "eks.ListAccessEntries": {"accessEntries": [PEOPLE]},
}
OBJECTS = [
    *THEIR_ARC,
    arc(OLDER),
    plugin(tolerations=[{"operator": "Exists"}]),
    thing("Namespace", "arc-systems", "helm"),
]
IN_THE_WAY = {
    "already there": {
        "paddock-dev/runner-gpu", "paddock-dev/cuda-builder", ALARM,
        "aws-ebs-csi-driver", "cluster-autoscaler", "ebs-csi-controller-sa",
        "/paddock/paddock-dev/metrics",
    },
    "permissions": {"cluster access"},
    "cluster": {
        "CRDs of actions.github.com", "scale sets of others", "Actions Runner Controller", "NVIDIA device plugin",
        "namespace arc-systems",
    },
    "github": {"runner group Default", "approval of forks"},
}  # fmt: skip
"""Subjects of lines by area."""


def ask(server: Server, method: str, path: str, **body: Any) -> None:
    """Send a request to GitHub's stand-in."""
    headers = {"Authorization": "Bearer ghp_made-up-0123456789", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server.url}/api/v3/{path}", json.dumps(body).encode(), headers, method=method)
    urllib.request.urlopen(asked, timeout=10).close()


@pytest.fixture
def github() -> Iterator[Server]:
    with lab_github.serving() as server:
        yield server


@pytest.fixture
def stack(project: Path, of_project: Path, github: Server, programs: Path) -> Stack:
    """Return a stack of an adopted cluster in an adopted network, and let Pulumi hold nothing of it."""
    file = project / "Pulumi.dev.yaml"
    document = yaml.safe_load(file.read_text())
    parts = document["config"]["paddock:fleet"]
    parts |= {"cluster": {**SHARED, "arc": {"controller": "everywhere"}}, "network": VPC, "runners": VOLUME}
    parts |= {"images": {"push": {"repository": "pytorch/images"}}}
    parts |= {"monitoring": {"enabled": True, "cloudwatch": {}}}
    parts["github"] |= {"url": f"{github.url}/acme", "serverVersion": "3.21"}
    file.write_text(yaml.safe_dump(document))
    (programs / "state.json").write_text(json.dumps({"deployment": {"resources": []}}))
    program(programs, "pulumi", f'[ "$1" = stack ] && exec cat {programs / "state.json"}\necho v3.259.0')
    return load(project, "dev")


def test_each_of_sixteen_things_of_others_is_named(
    stack: Stack, address: None, github: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(stack, AT)
    world.objects[:] = OBJECTS
    key, kubeconfig = tmp_path / "key.pem", tmp_path / "kubeconfig"
    key.write_text(private_key())
    issuer = f"{github.url.removeprefix('http://')}/_services/token"
    provider = {"Arn": f"arn:aws:iam::{NUMBER}:oidc-provider/{issuer}"}
    providers = {"iam.ListOpenIDConnectProviders": {"OpenIDConnectProviderList": [provider]}}
    answering(monkeypatch, Account({**healthy(), **ACCOUNT, **providers}))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    ask(github, "POST", "orgs/acme/repos", name="web", visibility="public")
    ask(github, "PATCH", "orgs/acme/actions/runner-groups/1", allows_public_repositories=True)
    with kubernetes_api.serve(KubernetesApi(world)) as api:
        api.kubeconfig(kubeconfig)
        report = doctor(Doctor(github_key=key))
    assert [line for line in report.results if "a bug in this check" in line.message] == []
    found = {(line.area, line.subject) for line in report.results if line.status in ("fail", "warn") and line.fix}
    expected = {(area, subject) for area, subjects in IN_THE_WAY.items() for subject in subjects}
    expected.add(("already there", issuer))
    assert len(expected) == 16
    assert expected - found == set()
