"""Each setting of the security baseline, broken in a copy of prod: its rule says so, and no other does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from paddock.plan.engine.graph import Graph
from paddock.plan.engine.values import Secret
from paddock.plan.rules import BASELINE, RULES, check_context
from paddock.plan.rules.base import Context, resource
from paddock.plan.rules.inputs import files
from tests.plan.rules.breaking import GONE, add, boot, drop, look_up, option, put, statement
from tests.support import fleets

TODAY = date(2026, 11, 21)
CLUSTER, LAUNCH, GROUP, ROLE, RELEASE = "Cluster", "LaunchTemplate", "SecurityGroup", "Role", "Release"
EKS = "cluster-eksCluster"
SHA = "0" * 40


def _context(name: str) -> Context:
    return Context(fleets.graph(name), files.read(fleets.ROOT), fleets.named(name).fleet, TODAY)


Breaking = Callable[[Graph], Graph] | dict[str, str]
"""A changed graph, or files that the repository gets."""


def _workflow(steps: str, permissions: str = "permissions: {contents: read}\n") -> dict[str, str]:
    return {".github/workflows/new.yml": f"on: push\n{permissions}jobs:\n  build:\n    runs-on: x\n    steps:\n{steps}"}


def _dockerfile(text: str) -> dict[str, str]:
    return {"images/new/Dockerfile": text}


_FROM = f"FROM ubuntu@sha256:{'0' * 64}\n"
_GITHUB = "token.actions.githubusercontent.com"
_EVERYBODY = '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}'


def _trust(**conditions: Any) -> Callable[[str], str]:
    exact = {f"{_GITHUB}:aud": "sts.amazonaws.com", f"{_GITHUB}:sub": "repo:acme/gpu-images:ref:refs/heads/main"}
    return statement(Condition={"StringEquals": exact, **conditions})


BROKEN: list[tuple[str, str, Breaking]] = [
    ("PAD-01", "no key", put(CLUSTER, EKS, "encryptionConfig", GONE)),
    ("PAD-01", "not for secrets", put(CLUSTER, EKS, "encryptionConfig/resources", [])),
    (
        "PAD-02",
        "no audit log",
        put(CLUSTER, EKS, "enabledClusterLogTypes", ["api", "authenticator", "controllerManager", "scheduler"]),
    ),
    ("PAD-03", "open to the world", put(CLUSTER, EKS, "vpcConfig/publicAccessCidrs", ["203.0.113.0/24", "0.0.0.0/0"])),
    ("PAD-03", "open by default", put(CLUSTER, EKS, "vpcConfig/publicAccessCidrs", GONE)),
    (
        "PAD-03",
        "two halves of the world",
        put(CLUSTER, EKS, "vpcConfig/publicAccessCidrs", ["0.0.0.0/1", "128.0.0.0/1"]),
    ),
    ("PAD-03", "no private endpoint", put(CLUSTER, EKS, "vpcConfig/endpointPrivateAccess", False)),
    ("PAD-04", "extended support", put(CLUSTER, EKS, "upgradePolicy/supportType", "EXTENDED")),
    ("PAD-04", "extended by default", put(CLUSTER, EKS, "upgradePolicy", GONE)),
    ("PAD-04", "out of support", put(CLUSTER, EKS, "version", "1.33")),
    ("PAD-05", "aws-auth", put(CLUSTER, EKS, "accessConfig/authenticationMode", "API_AND_CONFIG_MAP")),
    ("PAD-05", "creator is admin", put(CLUSTER, EKS, "accessConfig/bootstrapClusterCreatorAdminPermissions", GONE)),
    (
        "PAD-05",
        "a whole account",
        put("AccessEntry", "cluster-developers", "principalArn", "arn:aws:iam::123456789012:root"),
    ),
    ("PAD-05", "masters", put("AccessEntry", "cluster-developers", "kubernetesGroups", ["system:masters"])),
    ("PAD-06", "cluster", put(CLUSTER, EKS, "deletionProtection", False)),
    ("PAD-06", "images", option("Repository", "registry-runner-gpu", protect=False)),
    ("PAD-06", "key", option("Key", "cluster-secrets", protect=False)),
    ("PAD-07", "subnet", put("Subnet", "network-private-us-west-2a", "mapPublicIpOnLaunch", True)),
    ("PAD-07", "template", put(LAUNCH, "t4", "networkInterfaces", [{"associatePublicIpAddress": "true"}])),
    (
        "PAD-07",
        "nodes in a public subnet",
        lambda graph: put("NodeGroup", "t4-spot", "subnetIds", [_public_subnet(graph)])(graph),
    ),
    ("PAD-08", "optional", put(LAUNCH, "t4", "metadataOptions/httpTokens", "optional")),
    (
        "PAD-08",
        "image builder",
        put("InfrastructureConfiguration", "gpu-ami-builder", "instanceMetadataOptions/httpTokens", GONE),
    ),
    ("PAD-08", "no template", put("NodeGroup", "cluster-system", "launchTemplate", GONE)),
    ("PAD-09", "two hops", put(LAUNCH, "a100", "metadataOptions/httpPutResponseHopLimit", 2)),
    ("PAD-09", "as the image says", put(LAUNCH, "a100", "metadataOptions/httpPutResponseHopLimit", GONE)),
    ("PAD-10", "off", put(LAUNCH, "l4", "blockDeviceMappings/0/ebs/encrypted", "false")),
    ("PAD-10", "as the image says", put(LAUNCH, "l4", "blockDeviceMappings", GONE)),
    ("PAD-10", "recipe", put("ImageRecipe", "gpu-ami-recipe", "blockDeviceMappings/0/ebs/encrypted", GONE)),
    (
        "PAD-10",
        "storage class",
        add(resource("kubernetes:storage.k8s.io/v1:StorageClass", "fast", {"provisioner": "ebs.csi.aws.com"})),
    ),
    ("PAD-11", "key pair", put(LAUNCH, "t4", "keyName", "ops")),
    ("PAD-11", "remote access", put("NodeGroup", "t4-spot", "remoteAccess", {"ec2SshKey": "ops"})),
    ("PAD-11", "port", put(GROUP, "network-endpoints", "ingress/0/fromPort", 20)),
    ("PAD-12", "the internet", put(GROUP, "network-endpoints", "ingress/0/cidrBlocks", ["0.0.0.0/0"])),
    ("PAD-12", "the other internet", put(GROUP, "network-endpoints", "ingress/0/ipv6CidrBlocks", ["::/0"])),
    ("PAD-12", "no words", put(GROUP, "network-endpoints", "ingress/0/description", GONE)),
    ("PAD-12", "no words at all", put(GROUP, "gpu-ami-builder", "description", GONE)),
    ("PAD-13", "all protocols", put(GROUP, "gpu-ami-builder", "egress/0/protocol", "-1")),
    (
        "PAD-13",
        "all ports",
        lambda g: put(GROUP, "gpu-ami-builder", "egress/0/fromPort", 0)(
            put(GROUP, "gpu-ami-builder", "egress/0/toPort", 65535)(g)
        ),
    ),
    ("PAD-14", "no flow log", drop("FlowLog", "network-flow")),
    ("PAD-14", "only what is accepted", put("FlowLog", "network-flow", "trafficType", "ACCEPT")),
    ("PAD-14", "default group", drop("DefaultSecurityGroup", "network-default-sg")),
    ("PAD-15", "tags move", put("Repository", "registry-runner-gpu", "imageTagMutability", "MUTABLE")),
    ("PAD-15", "tags move by default", put("Repository", "registry-runner-gpu", "imageTagMutability", GONE)),
    ("PAD-15", "no scan", put("Repository", "registry-runner-gpu", "imageScanningConfiguration/scanOnPush", False)),
    (
        "PAD-15",
        "AWS's key",
        put("Repository", "registry-runner-gpu", "encryptionConfigurations/0", {"encryptionType": "AES256"}),
    ),
    ("PAD-15", "public", add(resource("aws:ecr/repositoryPolicy:RepositoryPolicy", "open", {"policy": _EVERYBODY}))),
    (
        "PAD-16",
        "may push",
        put(
            "RolePolicyAttachment",
            "cluster-node-AmazonEC2ContainerRegistryPullOnly",
            "policyArn",
            "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPowerUser",
        ),
    ),
    ("PAD-17", "no rotation", put("Key", "registry", "enableKeyRotation", False)),
    ("PAD-17", "everybody", put("Key", "registry", "policy", statement(Principal={"AWS": "*"}))),
    ("PAD-17", "no policy", put("Key", "registry", "policy", GONE)),
    ("PAD-18", "everything", put("RolePolicy", "autoscaler-policy", "policy", statement(Action="*", Resource="*"))),
    (
        "PAD-18",
        "administrator",
        put(
            "RolePolicyAttachment",
            "cluster-node-AmazonSSMManagedInstanceCore",
            "policyArn",
            "arn:aws:iam::aws:policy/AdministratorAccess",
        ),
    ),
    (
        "PAD-18",
        "pass any role",
        put("RolePolicy", "autoscaler-policy", "policy", statement(Action="iam:PassRole", Resource="*")),
    ),
    (
        "PAD-19",
        "writes",
        put("RolePolicy", "autoscaler-policy", "policy", statement(Action=["ec2:RunInstances"], Resource="*")),
    ),
    (
        "PAD-19",
        "reads data",
        put("RolePolicy", "autoscaler-policy", "policy", statement(Action=["s3:GetObject"], Resource="*")),
    ),
    (
        "PAD-19",
        "a whole service",
        put("RolePolicy", "autoscaler-policy", "policy", statement(Action=["s3:*"], Resource=["*"])),
    ),
    (
        "PAD-19",
        "every secret",
        put("RolePolicy", "autoscaler-policy", "policy", statement(Action="secretsmanager:Get*", Resource="*")),
    ),
    (
        "PAD-20",
        "any repository",
        put(
            ROLE,
            "image-push",
            "assumeRolePolicy",
            _trust(StringEquals={f"{_GITHUB}:aud": "sts.amazonaws.com", f"{_GITHUB}:sub": "repo:acme/*"}),
        ),
    ),
    (
        "PAD-20",
        "pull requests",
        put(
            ROLE,
            "image-push",
            "assumeRolePolicy",
            _trust(
                StringEquals={
                    f"{_GITHUB}:aud": "sts.amazonaws.com",
                    f"{_GITHUB}:sub": "repo:acme/gpu-images:pull_request",
                }
            ),
        ),
    ),
    (
        "PAD-20",
        "like",
        put(
            ROLE,
            "image-push",
            "assumeRolePolicy",
            _trust(
                StringEquals={f"{_GITHUB}:aud": "sts.amazonaws.com"},
                StringLike={f"{_GITHUB}:sub": "repo:acme/gpu-images:ref:refs/heads/*"},
            ),
        ),
    ),
    (
        "PAD-20",
        "any audience",
        put(
            ROLE,
            "image-push",
            "assumeRolePolicy",
            _trust(StringEquals={f"{_GITHUB}:sub": "repo:acme/gpu-images:ref:refs/heads/main"}),
        ),
    ),
    ("PAD-20", "no condition", put(ROLE, "image-push", "assumeRolePolicy", statement(Condition={}))),
    ("PAD-20", "provider", put("OpenIdConnectProvider", "image-push", "clientIdLists", ["https://github.com/acme"])),
    ("PAD-21", "everybody", put(ROLE, "autoscaler", "assumeRolePolicy", statement(Principal="*"))),
    (
        "PAD-21",
        "an account",
        put(ROLE, "autoscaler", "assumeRolePolicy", statement(Principal={"AWS": "arn:aws:iam::210987654321:root"})),
    ),
    ("PAD-22", "a month", put("LogGroup", "cluster-logs", "retentionInDays", 30)),
    ("PAD-22", "for ever", put("LogGroup", "cluster-logs", "retentionInDays", GONE)),
    ("PAD-22", "in clear", put("LogGroup", "cluster-logs", "kmsKeyId", GONE)),
    ("PAD-23", "bucket", add(resource("aws:s3/bucket:Bucket", "state", {}, protect=True))),
    ("PAD-24", "queue", add(resource("aws:sqs/queue:Queue", "interruptions", {}))),
    ("PAD-24", "topic", add(resource("aws:sns/topic:Topic", "interruptions", {}))),
    ("PAD-24", "everybody", add(resource("aws:sqs/queuePolicy:QueuePolicy", "interruptions", {"policy": _EVERYBODY}))),
    ("PAD-25", "any owner", look_up("aws:ec2/getAmi:getAmi", {"nameRegex": "gpu", "mostRecent": True})),
    ("PAD-25", "release of the day", put("NodeGroup", "t4-spot", "releaseVersion", GONE)),
    (
        "PAD-25",
        "not encrypted",
        put(
            "DistributionConfiguration",
            "gpu-ami-distribution",
            "distributions/0/amiDistributionConfiguration/kmsKeyId",
            GONE,
        ),
    ),
    (
        "PAD-25",
        "for everybody",
        put(
            "DistributionConfiguration",
            "gpu-ami-distribution",
            "distributions/0/amiDistributionConfiguration/launchPermission",
            {"userGroups": ["all"]},
        ),
    ),
    (
        "PAD-26",
        "password",
        put(LAUNCH, "t4", "userData", boot("featureGates:", "# DB_PASSWORD=correct-horse-battery\n  featureGates:")),
    ),
    ("PAD-26", "token", put("Component", "gpu-ami-driver", "data", lambda text: f"{text}\n# ghp_{'a' * 36}\n")),
    ("PAD-26", "kept secret by Pulumi only", put(LAUNCH, "t4", "userData", Secret)),
    (
        "PAD-27",
        "read-only port",
        put(LAUNCH, "t4", "userData", boot("maxPods:", "readOnlyPort: 10255\n      maxPods:")),
    ),
    (
        "PAD-27",
        "anonymous",
        put(LAUNCH, "t4", "userData", boot("maxPods:", "authentication: {anonymous: {enabled: true}}\n      maxPods:")),
    ),
    (
        "PAD-27",
        "flag",
        put(LAUNCH, "t4", "userData", boot("kubelet:", "kubelet:\n    flags: [--authorization-mode=AlwaysAllow]")),
    ),
    ("PAD-28", "no level", put("Namespace", "arc-arc-runners", "metadata/labels", {})),
    (
        "PAD-28",
        "privileged",
        put("Namespace", "arc-arc-runners", "metadata/labels/pod-security.kubernetes.io~enforce", "privileged"),
    ),
    ("PAD-28", "no reason", put("Namespace", "monitoring", "metadata/annotations", {})),
    (
        "PAD-28",
        "privileged runner",
        put(RELEASE, "gpu", "values/template/spec/containers/0/securityContext/privileged", True),
    ),
    ("PAD-29", "token", put(RELEASE, "gpu", "values/template/spec/automountServiceAccountToken", GONE)),
    ("PAD-29", "token without a policy", drop("ValidatingAdmissionPolicy", "arc-node-mark")),
    (
        "PAD-29",
        "token of a policy that only warns",
        put("ValidatingAdmissionPolicyBinding", "arc-node-mark", "spec/validationActions", ["Warn"]),
    ),
    (
        "PAD-29",
        "policy that lets pass",
        put("ValidatingAdmissionPolicy", "arc-node-mark", "spec/failurePolicy", "Ignore"),
    ),
    (
        "PAD-29",
        "token of another account",
        put(RELEASE, "gpu", "values/template/spec/serviceAccountName", "another"),
    ),
    (
        "PAD-29",
        "token of the same name elsewhere",
        put(
            "ValidatingAdmissionPolicy",
            "arc-node-mark",
            "spec/matchConditions/0/expression",
            "request.userInfo.username in ['system:serviceaccount:elsewhere:node-mark']",
        ),
    ),
    (
        "PAD-29",
        "default account",
        put("CronJob", "gpu-gpu-warm0", "spec/jobTemplate/spec/template/spec/serviceAccountName", GONE),
    ),
    ("PAD-29", "every verb", put(ROLE, "arc-arc-runners-warm", "rules/0/verbs", ["*"])),
    ("PAD-29", "secrets", put(ROLE, "arc-arc-runners-warm", "rules/0/resources", ["secrets"])),
    (
        "PAD-30",
        "metadata",
        put("NetworkPolicy", "arc-arc-runners-default", "spec/egress/0/to/0/ipBlock/except", ["10.0.0.0/16"]),
    ),
    ("PAD-30", "no policy", drop("NetworkPolicy", "arc-arc-runners-default")),
    ("PAD-30", "ingress only", put("NetworkPolicy", "monitoring-default", "spec/policyTypes", ["Ingress"])),
    ("PAD-31", "in clear", put("Secret", "arc-arc-runners-credential", "stringData", lambda secret: secret.value)),
    (
        "PAD-31",
        "environment",
        put(
            RELEASE,
            "gpu",
            "values/template/spec/containers/0/env",
            lambda env: [*env, {"name": "HF_TOKEN", "value": "hf_x"}],
        ),
    ),
    ("PAD-31", "chart values", put(RELEASE, "gpu", "values/githubConfigSecret", {"github_token": "x"})),
    (
        "PAD-32",
        "latest",
        put(RELEASE, "gpu", "values/template/spec/containers/0/image", "ghcr.io/actions/actions-runner:latest"),
    ),
    (
        "PAD-32",
        "no tag",
        put(RELEASE, "gpu", "values/template/spec/containers/0/image", "registry.example:5000/runner"),
    ),
    ("PAD-32", "no requests", put(RELEASE, "gpu", "values/template/spec/containers/0/resources/requests/memory", GONE)),
    ("PAD-32", "raw sockets", put(RELEASE, "gpu", "values/template/spec/containers/0/securityContext", GONE)),
    (
        "PAD-32",
        "the host's Docker",
        put(
            RELEASE,
            "gpu",
            "values/template/spec/volumes",
            lambda volumes: [*volumes, {"name": "docker", "hostPath": {"path": "/var/run/docker.sock"}}],
        ),
    ),
    ("PAD-32", "chart without limits", put(RELEASE, "monitoring", "values/resources", GONE)),
    (
        "PAD-32",
        "writes its root",
        put(
            "CronJob",
            "gpu-gpu-warm0",
            "spec/jobTemplate/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem",
            False,
        ),
    ),
    (
        "PAD-33",
        "old controller",
        add(
            resource(
                "kubernetes:actions.summerwind.dev/v1alpha1:RunnerDeployment",
                "old",
                {"spec": {"template": {"spec": {"ephemeral": False}}}},
            )
        ),
    ),
    (
        "PAD-33",
        "used again",
        put(
            RELEASE,
            "gpu",
            "values/template/spec/containers/0/env",
            lambda env: [*env, {"name": "EPHEMERAL", "value": "false"}],
        ),
    ),
    ("PAD-33", "everybody's group", put(RELEASE, "gpu", "values/runnerGroup", "Default")),
    ("PAD-34", "tag", _dockerfile("FROM ubuntu:24.04\nUSER 1001\n")),
    ("PAD-34", "root", _dockerfile(_FROM)),
    ("PAD-34", "root again", _dockerfile(f"{_FROM}USER 1001\nRUN true\nUSER root\n")),
    ("PAD-34", "ADD", _dockerfile(f"{_FROM}ADD https://example.com/x.tar.gz /\nUSER 1001\n")),
    ("PAD-34", "update alone", _dockerfile(f"{_FROM}RUN apt-get update\nRUN apt-get install -y git\nUSER 1001\n")),
    ("PAD-34", "secret", _dockerfile(f"{_FROM}ARG GITHUB_TOKEN\nUSER 1001\n")),
    ("PAD-35", "unsigned", _workflow("      - run: docker push x\n")),
    ("PAD-35", "unsigned pin", _workflow("      - run: |\n          ./inv build-runner \\\n            --pin dev\n")),
    (
        "PAD-35",
        "unsigned too",
        _workflow(f"      - uses: docker/build-push-action@{SHA}\n        with: {{push: true, sbom: true}}\n"),
    ),
    ("PAD-36", "a tag", _workflow("      - uses: actions/checkout@v4\n")),
    ("PAD-36", "no permissions", _workflow("      - run: true\n", permissions="")),
    ("PAD-36", "write for all", _workflow("      - run: true\n", permissions="permissions: write-all\n")),
    ("PAD-36", "token for all", _workflow("      - run: true\n", permissions="permissions: {id-token: write}\n")),
]


def _public_subnet(graph: Graph) -> str:
    (route,) = (r for r in graph.resources.values() if r.name == "network-public-out")
    return next(
        r.inputs["subnetId"]
        for r in graph.resources.values()
        if r.type.endswith("RouteTableAssociation") and r.inputs["routeTableId"] == route.inputs["routeTableId"]
    )


def test_there_are_36_settings_and_each_is_broken() -> None:
    assert [rule.id for rule in BASELINE] == [f"PAD-{number:02}" for number in range(1, 37)]
    assert {rule for rule, _, _ in BROKEN} == {rule.id for rule in BASELINE}


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_examples_keep_every_rule(name: str) -> None:
    judged = check_context(_context(name))
    assert judged.evaluated == tuple(RULES)
    assert [finding for finding in judged.findings if finding.severity != "info"] == []
    assert judged.unseen == ()


@pytest.mark.parametrize("name", fleets.SAMPLES)
def test_every_form_of_a_fleet_keeps_every_rule(name: str) -> None:
    found = [finding for finding in check_context(_context(name)).findings if finding.severity != "info"]
    assert {finding.id for finding in found} <= ({"PAD-31"} if name == "token" else set()), found


@pytest.mark.parametrize(("rule", "how", "breaking"), BROKEN, ids=lambda each: each if isinstance(each, str) else "")
def test_a_broken_setting_is_told_by_its_rule_alone(rule: str, how: str, breaking: Breaking) -> None:
    whole = _context("prod")
    broken = (
        replace(whole, files={**whole.files, **breaking})
        if isinstance(breaking, dict)
        else replace(whole, graph=breaking(whole.graph))
    )
    assert {violation.rule.id for violation in check_context(broken).violations} == {rule}
