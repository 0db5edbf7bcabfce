"""Another team's ARC in the cluster, with the real engine and a real API server: named before, untouched by `up`.

Nobody runs in the lab as their controller: what changes of theirs, the stack has changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from infra import versions
from infra.helm.charts import CONTROLLER, CRD
from paddock import clock
from paddock.fleet import Stack
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import ROOT, Engine, EngineError, Programs
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import _results, checks
from paddock.operate.doctor.report import Result
from paddock.operate.sources.aws import AwsReader
from paddock.plan.engine.program import plan_graph
from tests.support import fleets
from tests.support.engine import destroy, lab_in, releases
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("crds")]

REGION = "us-west-2"
GITHUB = "https://token.actions.githubusercontent.com"
SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
OLDER = "0.13.1"
CONTROLLERS, RUNNERS, ACCOUNT = "arc-systems", "arc-runners", "arc-gha-rs-controller"
"""Names of GitHub's own documents, which are also those that a stack has by default."""


class Team:
    """Another team's ARC, as Helm installs it."""

    def __init__(self, api: Api, crds: Path) -> None:
        self.api = api
        for name in (CONTROLLERS, RUNNERS):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for path in sorted(crds.glob("actions.github.com_*.yaml")):
            api.create(yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        (deployment,) = yaml.safe_load_all((ROOT / "tests/support/chain_controller.yaml").read_text())
        self._versioned(deployment, OLDER)
        api.create(deployment)
        meta = {"name": "gpu", "namespace": RUNNERS, "labels": {}}
        container = {"name": "runner", "image": "ghcr.io/actions/actions-runner:2.330.0"}
        spec = {"githubConfigUrl": "https://github.com/other", "githubConfigSecret": "theirs"}
        scale_set = {
            "apiVersion": SET[0],
            "kind": SET[1],
            "metadata": meta,
            "spec": {**spec, "template": {"spec": {"containers": [container]}}},
        }
        self._versioned(scale_set, OLDER)
        until(lambda: api.find("apiextensions.k8s.io/v1", CRD, "autoscalingrunnersets.actions.github.com"))
        until(lambda: self._create(scale_set))

    def _create(self, item: Object) -> bool:
        from paddock.kubernetes.errors import ApiError

        try:
            return bool(self.api.create(item))
        except ApiError as error:
            if error.status == 404:  # established, but not yet served
                return False
            raise

    @staticmethod
    def _versioned(item: Object, version: str) -> None:
        item["metadata"].setdefault("labels", {})["app.kubernetes.io/version"] = version

    def upgrade(self, version: str) -> None:
        deployment = self.api.get("apps/v1", "Deployment", ACCOUNT, CONTROLLERS)
        self.api.patch(deployment, {"metadata": {"labels": {"app.kubernetes.io/version": version}}})

    def things(self) -> list[Object]:
        """Return all that is theirs."""
        get = self.api.get
        return [
            *(get("apiextensions.k8s.io/v1", CRD, name) for name in CONTROLLER.crds),
            *(get("v1", "Namespace", name) for name in (CONTROLLERS, RUNNERS)),
            get("apps/v1", "Deployment", ACCOUNT, CONTROLLERS),
            get(*SET, "gpu", RUNNERS),
        ]

    def marks(self) -> list[tuple[str, str]]:
        """Return what changes with any change of theirs but its status."""
        return [
            (item["metadata"]["uid"], item["metadata"].get("generation") or item["metadata"]["resourceVersion"])
            for item in self.things()
        ]


class Cluster:
    """A cluster of another team, and stacks that come into it."""

    def __init__(self, lab: Lab, api: Api, folder: Path, crds: Path) -> None:
        self.lab, self.api, self.folder = lab, api, folder
        self.team = Team(api, crds)

    def stack(self, **cluster: Any) -> Stack:
        data = {**fleets.SAMPLES["any-cluster"], "cluster": {"kubeconfig": "~/.kube/config", **cluster}}
        return lab_stack.overlay(fleets.stack(data, "any-cluster"), kubeconfig=self.lab.kubeconfig, charts=None)

    def engine(self, stack: Stack) -> Engine:
        root = self.folder
        for name in ("infra", "runners"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        shutil.copy(ROOT / "Pulumi.yaml", root)
        charts.serve(root / "charts", charts.required_charts(plan_graph(stack)), None)
        stack = lab_stack.overlay(stack, kubeconfig=self.lab.kubeconfig, charts=root / "charts")
        (root / f"Pulumi.{stack.name}.yaml").write_text("config: {}\n")
        engine = Engine(root / "state", Programs.find(), stack=stack.name, root=root, kubeconfig=self.lab.kubeconfig)
        engine.prepare(lab_stack.configuration(stack), {"paddock:githubAppKey": "made-up"})
        return engine

    def doctor(self, stack: Stack, *areas: str) -> Mapping[str, Result]:
        """Return the lines about the cluster, and of these areas, by their subject."""
        context = Context(self.folder, stack, clock.today(), AwsReader(REGION))
        asked = [check for check in checks(context) if check.area in ("cluster", *areas)]
        return {line.subject: line for check in asked for line in _results(check, context)}

    def kubeconfig(self, name: str) -> Path:
        """Write a kubeconfig in which the lab's cluster is the one of this name in EKS."""
        document = yaml.safe_load(self.lab.kubeconfig.read_text())
        document["clusters"][0]["name"] = document["contexts"][0]["context"]["cluster"] = name
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, reference_data: Path) -> Iterator[Cluster]:
    for lab in lab_in(tmp_path_factory.mktemp("lab")):
        nodes.start(lab, fleets.named("any-cluster"))
        with lab_api(lab.kubeconfig) as api:
            yield Cluster(lab, api, tmp_path_factory.mktemp("project"), reference_data / "crds")


def test_the_doctor_names_all_that_up_would_touch(cluster: Cluster) -> None:
    found = cluster.doctor(cluster.stack())
    assert not [line for line in found.values() if line.status == "unknown"]
    failed = {subject: line.fix for subject, line in found.items() if line.status == "fail"}
    assert set(failed) == {
        f"namespace {CONTROLLERS}",
        f"namespace {RUNNERS}",
        "CRDs of actions.github.com",
        "Actions Runner Controller",
        "scale sets of others",
    }
    everywhere = cluster.doctor(cluster.stack(arc={"controller": "everywhere", "suffix": "gpus"}))
    assert f"{RUNNERS}/gpu {OLDER}" in everywhere["scale sets of others"].message


def test_up_without_a_key_stops_and_changes_nothing_of_theirs(cluster: Cluster) -> None:
    before = cluster.team.marks()
    engine = cluster.engine(cluster.stack(arc={"suffix": "gpus"}))
    with pytest.raises(EngineError, match="conflict"):
        engine.up()
    assert cluster.team.marks() == before


@pytest.mark.parametrize(
    ("arc", "installed"),
    [
        ({"suffix": "gpus"}, {"arc-gpus"}),
        ({"suffix": "gpus", "controller": f"{CONTROLLERS}/{ACCOUNT}"}, set()),
    ],
    ids=["a controller of our own", "the team's controller"],
)
def test_with_a_key_up_goes_to_the_end_and_destroy_leaves_theirs(
    cluster: Cluster, arc: Mapping[str, Any], installed: set[str]
) -> None:
    before = cluster.team.marks()
    stack = cluster.stack(arc=arc, crds={"arc": "keep"})
    engine = cluster.engine(stack)

    engine.up()
    ours = cluster.api.get(*SET, "gpu", "arc-runners-gpus")
    assert ours["metadata"]["labels"]["app.kubernetes.io/version"] == versions.ARC
    assert {name for name in releases(cluster.api) if name.startswith("arc")} == installed
    assert cluster.team.marks() == before
    assert not {subject for subject in cluster.doctor(stack) if subject.startswith("namespace ")}

    destroy(engine, protected=True)
    assert cluster.team.marks() == before
    assert cluster.api.find(*SET, "gpu", "arc-runners-gpus") is None


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An account that has GitHub's provider, seen by the role that deploys: ARNs of both."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with mock_aws():
        iam = boto3.client("iam", REGION)
        provider = iam.create_open_id_connect_provider(Url=GITHUB, ClientIDList=["sts.amazonaws.com"])
        role = iam.create_role(RoleName="deployer", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        keys = boto3.client("sts", REGION).assume_role(RoleArn=role, RoleSessionName="ci")["Credentials"]
        for name, key in (
            ("AWS_ACCESS_KEY_ID", "AccessKeyId"),
            ("AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
            ("AWS_SESSION_TOKEN", "SessionToken"),
        ):
            monkeypatch.setenv(name, keys[key])
        yield {"provider": provider["OpenIDConnectProviderArn"], "role": role}


def ours(policy: str, role: str, cluster: Mapping[str, Any] | None = None, **push: str) -> Stack:
    """Return a stack that makes its own cluster, and pushes images from a repository."""
    entry = {"principal": role, "policy": policy}
    return fleets.stack(
        fleets.fleet_data(
            cluster={"version": "1.35", "deletionProtection": False, "access": {"ci": entry}, **(cluster or {})},
            images={"repositories": ["runner-gpu"], "push": {"repository": "acme/images", "branch": "main", **push}},
        ),
        "ours",
    )


def test_up_into_an_account_of_others_goes_to_the_end(
    cluster: Cluster, account: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = ours("view", account["role"])
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(stack.fleet.cluster_name)))
    found = cluster.doctor(stack, "permissions", "already there")
    mends = {subject: line.fix for subject, line in found.items() if line.status == "fail"}
    assert f"images.push.provider: {account['provider']}" in "".join(mends.values())
    assert "policy: cluster-admin}" in mends["cluster access"]
    assert mends["scale sets of others"] == "cluster.arc: {suffix: paddock, controller: own}"
    assert {f"namespace {CONTROLLERS}", f"namespace {RUNNERS}", "CRDs of actions.github.com"} <= set(mends)

    cluster.team.upgrade("0.14.1")  # as the doctor asks of a controller that is to serve this stack
    before = cluster.team.marks()
    keys = {"arc": {"suffix": "gpus", "controller": f"{CONTROLLERS}/{ACCOUNT}"}, "crds": {"arc": "keep"}}
    mended = ours("cluster-admin", account["role"], keys, provider=account["provider"])
    found = cluster.doctor(mended, "permissions")
    assert not [line for line in found.values() if line.status == "fail" and line.area == "cluster"]
    assert found["cluster access"].status == "pass"
    monkeypatch.delenv("KUBECONFIG")
    for node in cluster.api.list("v1", "Node"):  # system nodes of this stack, for which its charts wait
        cluster.api.patch(node, {"metadata": {"labels": {"role": "system"}}})
    engine = cluster.engine(mended)
    engine.up()
    assert cluster.api.get(*SET, "gpu", "arc-runners-gpus")
    assert cluster.team.marks() == before
    destroy(engine, protected=True)
    assert cluster.team.marks() == before
