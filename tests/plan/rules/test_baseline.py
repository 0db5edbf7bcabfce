"""Each setting of the security baseline, broken in a copy of prod: its rule says so, and no other does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

import pytest

from infra.component import LINK_LOCAL
from paddock.fleet.model.network import PRIVATE_RANGES
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import Secret
from paddock.plan.rules import BASELINE, RULES, RuleViolation, check_context, repository_files
from paddock.plan.rules.base import Context
from tests.plan.rules.breaking import REMOVED, add, boot, drop, look_up, option, put, resource, statement
from tests.support import fleets

TODAY = date(2026, 11, 21)
CLUSTER, LAUNCH, GROUP, ROLE, RELEASE = "Cluster", "LaunchTemplate", "SecurityGroup", "Role", "Release"
EKS = "cluster-eksCluster"
SHA = "0" * 40


@cache
def _context(name: str) -> Context:
    if name == "serving":
        read = fleets.stack(fleets.fleet_data(serving=fleets.SERVING))
        return Context(plan_graph(read), repository_files(fleets.ROOT), read.fleet, TODAY)
    return Context(fleets.graph(name), repository_files(fleets.ROOT), fleets.named(name).fleet, TODAY)


@cache
def _always(name: str) -> frozenset[RuleViolation]:
    """What an unbroken stack violates, which many tests take away from what a broken one does."""
    return frozenset(check_context(_context(name)).violations)


Breaking = Callable[[Graph], Graph] | dict[str, str]
"""A changed graph, or files that the repository gets."""


def _workflow(steps: str, permissions: str = "permissions: {contents: read}\n") -> dict[str, str]:
    return {".github/workflows/new.yml": f"on: push\n{permissions}jobs:\n  build:\n    runs-on: x\n    steps:\n{steps}"}


def _dockerfile(text: str) -> dict[str, str]:
    return {"images/new/Dockerfile": text}


_FROM = f"FROM ubuntu@sha256:{'0' * 64}\n"
_GITHUB = "token.actions.githubusercontent.com"
_PUBLIC = '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}'


ONE_REMEDY = {"PAD001", "PAD002", "PAD009", "PAD013", "PAD019", "PAD021", "PAD026"}
"""Rules that say the same in every case. All others name what this one takes."""


_AUD = {"aud": "sts.amazonaws.com"}


def _trust(equal: Mapping[str, Any], like: Mapping[str, Any] | None = None) -> Breaking:
    """Trust GitHub's tokens with these claims."""
    tests = {"StringEquals": equal, "StringLike": like or {}}
    conditions = {name: {f"{_GITHUB}:{key}": value for key, value in claims.items()} for name, claims in tests.items()}
    return put(ROLE, "image-push", "assumeRolePolicy", statement(Condition={n: c for n, c in conditions.items() if c}))


def _eks(path: str, value: Any) -> Breaking:
    return put(CLUSTER, EKS, path, value)


def _boot(old: str, new: str) -> Breaking:
    return put(LAUNCH, "t4", "userData", boot(old, new))


def _allows(**parts: Any) -> Breaking:
    return put("RolePolicy", "autoscaler-policy", "policy", statement(**parts))


def _registry(path: str, value: Any) -> Breaking:
    return put("Repository", "registry-runner-gpu", path, value)


def _distribution(path: str, value: Any) -> Breaking:
    at = f"distributions/0/amiDistributionConfiguration/{path}"
    return put("DistributionConfiguration", "gpu-ami-distribution", at, value)


def _pod(path: str, value: Any) -> Breaking:
    return put(RELEASE, "gpu", f"values/template/spec/{path}", value)


def _node_policy(name: str) -> Breaking:
    arn = f"arn:aws:iam::aws:policy/{name}"
    return put("RolePolicyAttachment", "cluster-node-AmazonEKSWorkerNodePolicy", "policyArn", arn)


_SECRETS = statement(Action="secretsmanager:GetSecretValue", Resource="arn:aws:secretsmanager:us-west-2:123456789012:*")

BROKEN: list[tuple[str, str, Breaking]] = [
    ("PAD001", "no key", _eks("encryptionConfig", REMOVED)),
    ("PAD001", "not for secrets", _eks("encryptionConfig/resources", [])),
    ("PAD002", "no audit log", _eks("enabledClusterLogTypes", ["api", "authenticator", "controllerManager",
     "scheduler"])),
    ("PAD003", "open to the world", _eks("vpcConfig/publicAccessCidrs", ["203.0.113.0/24", "0.0.0.0/0"])),
    ("PAD003", "open by default", _eks("vpcConfig/publicAccessCidrs", REMOVED)),
    ("PAD003", "two halves of the world", _eks("vpcConfig/publicAccessCidrs", ["0.0.0.0/1", "128.0.0.0/1"])),
    ("PAD003", "no private endpoint", _eks("vpcConfig/endpointPrivateAccess", False)),
    ("PAD004", "extended support", _eks("upgradePolicy/supportType", "EXTENDED")),
    ("PAD004", "extended by default", _eks("upgradePolicy", REMOVED)),
    ("PAD004", "out of support", _eks("version", "1.33")),
    ("PAD005", "aws-auth", _eks("accessConfig/authenticationMode", "API_AND_CONFIG_MAP")),
    ("PAD005", "creator is admin", _eks("accessConfig/bootstrapClusterCreatorAdminPermissions", REMOVED)),
    ("PAD005", "a whole account", put("AccessEntry", "cluster-developers", "principalArn",
     "arn:aws:iam::123456789012:root")),
    ("PAD005", "masters", put("AccessEntry", "cluster-developers", "kubernetesGroups", ["system:masters"])),
    ("PAD006", "cluster", _eks("deletionProtection", False)),
    ("PAD006", "images", option("Repository", "registry-runner-gpu", protect=False)),
    ("PAD006", "access", option("AccessEntry", "cluster-developers", protect=True)),
    ("PAD006", "key", option("Key", "cluster-secrets", protect=False)),
    ("PAD007", "subnet", put("Subnet", "network-private-us-west-2a", "mapPublicIpOnLaunch", True)),
    ("PAD007", "template", put(LAUNCH, "t4", "networkInterfaces", [{"associatePublicIpAddress": "true"}])),
    ("PAD007", "nodes in a public subnet", lambda graph: put("NodeGroup", "t4-spot", "subnetIds",
     [_public_subnet(graph)])(graph)),
    ("PAD008", "optional", put(LAUNCH, "t4", "metadataOptions/httpTokens", "optional")),
    ("PAD008", "image builder", put("InfrastructureConfiguration", "gpu-ami-builder",
     "instanceMetadataOptions/httpTokens", REMOVED)),
    ("PAD008", "no template", put("NodeGroup", "cluster-system", "launchTemplate", REMOVED)),
    ("PAD009", "two hops", put(LAUNCH, "a100", "metadataOptions/httpPutResponseHopLimit", 2)),
    ("PAD009", "as the image says", put(LAUNCH, "a100", "metadataOptions/httpPutResponseHopLimit", REMOVED)),
    ("PAD010", "off", put(LAUNCH, "l4", "blockDeviceMappings/0/ebs/encrypted", "false")),
    ("PAD010", "as the image says", put(LAUNCH, "l4", "blockDeviceMappings", REMOVED)),
    ("PAD010", "recipe", put("ImageRecipe", "gpu-ami-recipe", "blockDeviceMappings/0/ebs/encrypted", REMOVED)),
    ("PAD010", "storage class", add(resource("kubernetes:storage.k8s.io/v1:StorageClass", "fast",
     {"provisioner": "ebs.csi.aws.com"}))),
    ("PAD011", "key pair", put(LAUNCH, "t4", "keyName", "ops")),
    ("PAD011", "remote access", put("NodeGroup", "t4-spot", "remoteAccess", {"ec2SshKey": "ops"})),
    ("PAD011", "port", put(GROUP, "network-endpoints", "ingress/0/fromPort", 20)),
    ("PAD012", "the internet", put(GROUP, "network-endpoints", "ingress/0/cidrBlocks", ["0.0.0.0/0"])),
    ("PAD012", "the other internet", put(GROUP, "network-endpoints", "ingress/0/ipv6CidrBlocks", ["::/0"])),
    ("PAD012", "no words", put(GROUP, "network-endpoints", "ingress/0/description", REMOVED)),
    ("PAD012", "no words at all", put(GROUP, "gpu-ami-builder", "description", REMOVED)),
    ("PAD013", "all protocols", put(GROUP, "gpu-ami-builder", "egress/0/protocol", "-1")),
    ("PAD013", "all ports", lambda g: put(GROUP, "gpu-ami-builder", "egress/0/fromPort", 0)(put(GROUP,
     "gpu-ami-builder", "egress/0/toPort", 65535)(g))),
    ("PAD014", "no flow log", drop("FlowLog", "network-flow")),
    ("PAD014", "only what is accepted", put("FlowLog", "network-flow", "trafficType", "ACCEPT")),
    ("PAD014", "default group", drop("DefaultSecurityGroup", "network-default-sg")),
    ("PAD015", "tags move", _registry("imageTagMutability", "MUTABLE")),
    ("PAD015", "tags move by default", _registry("imageTagMutability", REMOVED)),
    ("PAD015", "no scan", _registry("imageScanningConfiguration/scanOnPush", False)),
    ("PAD015", "AWS's key", _registry("encryptionConfigurations/0", {"encryptionType": "AES256"})),
    ("PAD015", "public", add(resource("aws:ecr/repositoryPolicy:RepositoryPolicy", "open", {"policy": _PUBLIC}))),
    ("PAD016", "may push", put("RolePolicyAttachment", "cluster-node-AmazonEC2ContainerRegistryPullOnly", "policyArn",
     "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPowerUser")),
    ("PAD017", "no rotation", put("Key", "registry", "enableKeyRotation", False)),
    ("PAD017", "everybody", put("Key", "registry", "policy", statement(Principal={"AWS": "*"}))),
    ("PAD017", "no policy", put("Key", "registry", "policy", REMOVED)),
    ("PAD018", "everything", _allows(Action="*", Resource="*")),
    ("PAD018", "administrator", _node_policy("AdministratorAccess")),
    ("PAD018", "pass any role", _allows(Action="iam:PassRole", Resource="*")),
    ("PAD019", "writes", _allows(Action=["ec2:RunInstances"], Resource="*")),
    ("PAD019", "reads data", _allows(Action=["s3:GetObject"], Resource="*")),
    ("PAD019", "a whole service", _allows(Action=["s3:*"], Resource=["*"])),
    ("PAD019", "every secret", _allows(Action="secretsmanager:Get*", Resource="*")),
    ("PAD020", "any repository", _trust(_AUD | {"sub": "repo:acme/*"})),
    ("PAD020", "pull requests", _trust(_AUD | {"sub": "repo:acme/gpu-images:pull_request"})),
    ("PAD020", "like", _trust(_AUD, {"sub": "repo:acme/gpu-images:ref:refs/heads/*"})),
    ("PAD020", "any ids", _trust(_AUD, {"sub": "repo:acme@*/gpu-images@*:ref:refs/heads/main"})),
    ("PAD020", "one id", _trust(_AUD | {"sub": ["repo:acme@65/gpu-images:ref:refs/heads/main"]})),
    ("PAD020", "any audience", _trust({"sub": "repo:acme/gpu-images:ref:refs/heads/main"})),
    ("PAD020", "no condition", put(ROLE, "image-push", "assumeRolePolicy", statement(Condition={}))),
    ("PAD020", "provider", put("OpenIdConnectProvider", "image-push", "clientIdLists", ["https://github.com/acme"])),
    ("PAD021", "everybody", put(ROLE, "autoscaler", "assumeRolePolicy", statement(Principal="*"))),
    ("PAD021", "an account", put(ROLE, "autoscaler", "assumeRolePolicy",
     statement(Principal={"AWS": "arn:aws:iam::210987654321:root"}))),
    ("PAD022", "a month", put("LogGroup", "cluster-logs", "retentionInDays", 30)),
    ("PAD022", "for ever", put("LogGroup", "cluster-logs", "retentionInDays", REMOVED)),
    ("PAD022", "in clear text", put("LogGroup", "cluster-logs", "kmsKeyId", REMOVED)),
    ("PAD023", "bucket", add(resource("aws:s3/bucket:Bucket", "state", {}, protect=True))),
    ("PAD024", "queue", add(resource("aws:sqs/queue:Queue", "interruptions", {}))),
    ("PAD024", "topic", add(resource("aws:sns/topic:Topic", "interruptions", {}))),
    ("PAD024", "everybody", add(resource("aws:sqs/queuePolicy:QueuePolicy", "interruptions", {"policy": _PUBLIC}))),
    ("PAD025", "any owner", look_up("aws:ec2/getAmi:getAmi", {"nameRegex": "gpu", "mostRecent": True})),
    ("PAD025", "release of the day", put("NodeGroup", "t4-spot", "releaseVersion", REMOVED)),
    ("PAD025", "not encrypted", _distribution("kmsKeyId", REMOVED)),
    ("PAD025", "for everybody", _distribution("launchPermission", {"userGroups": ["all"]})),
    ("PAD026", "password", _boot("featureGates:", "# DB_PASSWORD=correct-horse-battery\n  featureGates:")),
    ("PAD026", "token", put("Component", "gpu-ami-driver", "data", lambda text: f"{text}\n# ghp_{'a' * 36}\n")),
    ("PAD026", "kept secret by Pulumi only", put(LAUNCH, "t4", "userData", Secret)),
    ("PAD027", "read-only port", _boot("maxPods:", "readOnlyPort: 10255\n      maxPods:")),
    ("PAD027", "anonymous", _boot("maxPods:", "authentication: {anonymous: {enabled: true}}\n      maxPods:")),
    ("PAD027", "flag", _boot("kubelet:", "kubelet:\n    flags: [--authorization-mode=AlwaysAllow]")),
    ("PAD028", "no level", put("Namespace", "arc-arc-runners", "metadata/labels", {})),
    ("PAD028", "privileged", put("Namespace", "arc-arc-runners", "metadata/labels/pod-security.kubernetes.io~enforce",
     "privileged")),
    ("PAD028", "no reason", put("Namespace", "monitoring", "metadata/annotations", {})),
    ("PAD028", "privileged runner", _pod("containers/0/securityContext/privileged", True)),
    ("PAD029", "token", _pod("automountServiceAccountToken", REMOVED)),
    ("PAD029", "token without a policy", drop("ValidatingAdmissionPolicy", "arc-node-mark")),
    ("PAD029", "token of a policy that only warns", put("ValidatingAdmissionPolicyBinding", "arc-node-mark",
     "spec/validationActions", ["Warn"])),
    ("PAD029", "policy that lets pass", put("ValidatingAdmissionPolicy", "arc-node-mark", "spec/failurePolicy",
     "Ignore")),
    ("PAD029", "token of another account", _pod("serviceAccountName", "another")),
    ("PAD029", "token of the same name elsewhere", put("ValidatingAdmissionPolicy", "arc-node-mark",
     "spec/matchConditions/0/expression",
     "request.userInfo.username in ['system:serviceaccount:elsewhere:node-mark']")),
    ("PAD029", "default account", put("CronJob", "gpu-gpu-warm0",
     "spec/jobTemplate/spec/template/spec/serviceAccountName", REMOVED)),
    ("PAD029", "every verb", put(ROLE, "arc-arc-runners-warm", "rules/0/verbs", ["*"])),
    ("PAD029", "secrets", put(ROLE, "arc-arc-runners-warm", "rules/0/resources", ["secrets"])),
    ("PAD029", "rights of others", put(ROLE, "arc-arc-runners-warm", "rules/0/verbs", ["create", "impersonate"])),
    ("PAD029", "commands in other pods", put(ROLE, "arc-arc-runners-warm", "rules/0/resources", ["jobs", "pods/*"])),
    ("PAD029", "a token that reads", put("ClusterRole", "arc-node-mark", "rules/0/verbs", ["get", "patch"])),
    ("PAD029", "a token for what no policy sees", put("ClusterRole", "arc-node-mark", "rules/0/resources",
     ["nodes", "pods"])),
    ("PAD029", "a token with a role of others", put("ClusterRoleBinding", "arc-node-mark", "roleRef/name", "edit")),
    ("PAD029", "every account's token", add(resource(types.CLUSTER_ROLE_BINDING, "all", {"roleRef": {"name": "view"},
     "subjects": [{"kind": "Group", "name": "system:serviceaccounts:arc-runners"}]}))),
    ("PAD030", "metadata", put("NetworkPolicy", "arc-arc-runners-default", "spec/egress/0/to/0/ipBlock/except",
     list(PRIVATE_RANGES))),
    ("PAD030", "no policy", drop("NetworkPolicy", "arc-arc-runners-default")),
    ("PAD030", "everybody may call", put("NetworkPolicy", "arc-arc-runners-default", "spec/ingress", [{}])),
    ("PAD030", "the internet may call", put("NetworkPolicy", "monitoring-default", "spec/ingress/0/from",
     [{"ipBlock": {"cidr": "0.0.0.0/0"}}])),
    ("PAD030", "jobs call every pod", put("NetworkPolicy", "arc-arc-runners-default", "spec/egress",
     lambda rules: [*rules, {"to": [{"namespaceSelector": {}}]}])),
    ("PAD030", "jobs call each other", put("NetworkPolicy", "arc-arc-runners-default", "spec/egress",
     lambda rules: [*rules, {"to": [{"podSelector": {}}]}])),
    ("PAD030", "ingress only", put("NetworkPolicy", "monitoring-default", "spec/policyTypes", ["Ingress"])),
    ("PAD037", "peers", put("NetworkPolicy", "arc-arc-runners-default", "spec/egress/0/to/0/ipBlock/except",
     [LINK_LOCAL, "10.0.0.0/8"])),
    ("PAD031", "in clear text", put("Secret", "arc-arc-runners-credential", "stringData", lambda secret: secret.value)),
    ("PAD031", "environment", _pod("containers/0/env", lambda env: [*env, {"name": "HF_TOKEN", "value": "hf_x"}])),
    ("PAD031", "a password in an address", _pod("containers/0/env", lambda env: [*env, {"name": "PIP_INDEX_URL",
     "value": "https://ci:hunter22@pypi.example.com/simple"}])),
    ("PAD031", "a key of AWS", _pod("containers/0/env", lambda env: [*env, {"name": "AWS_ACCESS_KEY_ID",
     "value": "AKIA" + "A" * 16}])),
    ("PAD031", "a whole secret", _pod("containers/0/envFrom", [{"secretRef": {"name": "cache"}}])),
    ("PAD031", "a secret of the fleet", _pod("volumes", lambda volumes: [*volumes, {"name": "app",
     "secret": {"secretName": "github-credential"}}])),
    ("PAD031", "a secret among others", _pod("volumes", lambda volumes: [*volumes, {"name": "app",
     "projected": {"sources": [{"secret": {"name": "github-credential"}}]}}])),
    ("PAD031", "chart values", put(RELEASE, "gpu", "values/githubConfigSecret", {"github_token": "x"})),
    ("PAD032", "latest", _pod("containers/0/image", "ghcr.io/actions/actions-runner:latest")),
    ("PAD032", "no tag", _pod("containers/0/image", "registry.example:5000/runner")),
    ("PAD032", "no requests", _pod("containers/0/resources/requests/memory", REMOVED)),
    ("PAD032", "raw sockets", _pod("containers/0/securityContext", REMOVED)),
    ("PAD032", "the host's Docker", _pod("volumes", lambda volumes: [*volumes, {"name": "docker",
     "hostPath": {"path": "/var/run/docker.sock"}}])),
    ("PAD032", "chart without limits", put(RELEASE, "monitoring", "values/resources", REMOVED)),
    ("PAD032", "writes its root", put("CronJob", "gpu-gpu-warm0",
     "spec/jobTemplate/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem", False)),
    ("PAD033", "old controller", add(resource("kubernetes:actions.summerwind.dev/v1alpha1:RunnerDeployment", "old",
     {"spec": {"template": {"spec": {"ephemeral": False}}}}))),
    ("PAD033", "used again", _pod("containers/0/env", lambda env: [*env, {"name": "EPHEMERAL", "value": "false"}])),
    ("PAD034", "tag", _dockerfile("FROM ubuntu:24.04\nUSER 1001\n")),
    ("PAD034", "root", _dockerfile(_FROM)),
    ("PAD034", "root again", _dockerfile(f"{_FROM}USER 1001\nRUN true\nUSER root\n")),
    ("PAD034", "ADD", _dockerfile(f"{_FROM}ADD https://example.com/x.tar.gz /\nUSER 1001\n")),
    ("PAD034", "update alone", _dockerfile(f"{_FROM}RUN apt-get update\nRUN apt-get install -y git\nUSER 1001\n")),
    ("PAD034", "secret", _dockerfile(f"{_FROM}ARG GITHUB_TOKEN\nUSER 1001\n")),
    ("PAD035", "unsigned", _workflow("      - run: docker push x\n")),
    ("PAD035", "unsigned pin", _workflow("      - run: |\n          ./inv build-runner \\\n            --pin dev\n")),
    ("PAD035", "unsigned push", _workflow("      - run: ./inv images.build runner --push\n")),
    ("PAD035", "unsigned too",
     _workflow(f"      - uses: docker/build-push-action@{SHA}\n        with: {{push: true, sbom: true}}\n")),
    ("PAD036", "a tag", _workflow("      - uses: actions/checkout@v4\n")),
    ("PAD036", "no permissions", _workflow("      - run: true\n", permissions="")),
    ("PAD036", "write for all", _workflow("      - run: true\n", permissions="permissions: write-all\n")),
    ("PAD036", "token for all", _workflow("      - run: true\n", permissions="permissions: {id-token: write}\n")),
    ("PAD038", "by variable", put(RELEASE, "device-plugin", "values/deviceListStrategy", "envvar")),
    ("PAD038", "by variable, the default", put(RELEASE, "device-plugin", "values/deviceListStrategy", REMOVED)),
    ("PAD038", "plugin without rights", put(RELEASE, "device-plugin", "values/securityContext/capabilities/add", [])),
    ("PAD038", "discovery without rights", put(RELEASE, "device-plugin", "values/gfd/securityContext", {})),
    ("PAD038", "the image's default", _boot("as-volume-mounts", "other")),
    ("PAD038", "nodes that accept the variable", _boot("unprivileged=false", "unprivileged=true")),
    ("PAD038", "a runner with every GPU", _pod("containers/0/env", lambda env: [*env, {"name": "NVIDIA_VISIBLE_DEVICES",
     "value": "all"}])),
    ("PAD039", "the CNI's policy", _node_policy("AmazonEKS_CNI_Policy")),
    ("PAD039", "every parameter", _node_policy("AmazonSSMManagedInstanceCore")),
    ("PAD039", "secrets", put("RolePolicy", "cluster-node-policy", "policy", _SECRETS)),
]  # fmt: skip


def _public_subnet(graph: Graph) -> str:
    (route,) = (r for r in graph.resources.values() if r.name == "network-public-out")
    return next(
        r.inputs["subnetId"]
        for r in graph.resources.values()
        if r.type.endswith("RouteTableAssociation") and r.inputs["routeTableId"] == route.inputs["routeTableId"]
    )


def _ray(path: str, value: Any) -> Breaking:
    return put("RayService", "serving", f"spec/rayClusterConfig/{path}", value)


BROKEN_SERVING: list[tuple[str, str, Breaking]] = [
    ("PAD040", "asks nobody", _ray("authOptions/mode", "disabled")),
    ("PAD040", "a token of its own", _ray("authOptions/secretName", REMOVED)),
    ("PAD040", "an address", _ray("headGroupSpec/serviceType", "LoadBalancer")),
    ("PAD040", "an ingress", _ray("headGroupSpec/enableIngress", True)),
    ("PAD040", "state in clear text", _ray("gcsFaultToleranceOptions", {"redisAddress": "redis://ray.example.com"})),
]


def test_there_are_40_settings_and_each_is_broken() -> None:
    assert [rule.id for rule in BASELINE] == [f"PAD{number:03}" for number in range(1, 41)]
    assert {rule for rule, _, _ in [*BROKEN, *BROKEN_SERVING]} == {rule.id for rule in BASELINE}


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_examples_keep_every_rule(name: str) -> None:
    evaluation = check_context(_context(name))
    assert evaluation.evaluated == tuple(RULES)
    assert [finding for finding in evaluation.findings if finding.severity != "info"] == []
    assert evaluation.unseen == ()


@pytest.mark.parametrize("name", fleets.SAMPLES)
def test_every_form_of_a_fleet_keeps_every_rule(name: str) -> None:
    result = [finding for finding in check_context(_context(name)).findings if finding.severity != "info"]
    expected = {"token": {"PAD031"}, "docker": {"PAD033"}, "job-logs": {"PAD033"}}.get(name, set())
    assert {finding.id for finding in result} <= expected, result


@pytest.mark.parametrize(
    ("stack", "rule", "how", "breaking"),
    [*(("prod", *case) for case in BROKEN), *(("serving", *case) for case in BROKEN_SERVING)],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_broken_setting_violates_its_rule_alone(stack: str, rule: str, how: str, breaking: Breaking) -> None:
    whole = _context(stack)
    broken = (
        replace(whole, files={**whole.files, **breaking})
        if isinstance(breaking, dict)
        else replace(whole, graph=breaking(whole.graph))
    )
    violations = [
        violation
        for violation in check_context(broken).violations
        # What only GitHub knows is said of every scale set, in other words where a pod is privileged.
        if violation not in _always(stack) and "is not known here" not in violation.detail.message
    ]
    assert {violation.rule.id for violation in violations} == {rule}
    assert all(violation.detail.fix for violation in violations) or rule in ONE_REMEDY


@pytest.mark.parametrize("group", ["Default", "gpu-private", ""])
@pytest.mark.parametrize(
    "url", ["https://github.com/acme", "https://github.com/acme/app", "https://ghe.io/enterprises/a"]
)
def test_no_name_is_taken_for_knowledge_of_who_may_start_jobs(group: str, url: str) -> None:
    whole = _context("smallest")
    for key, value in (("runnerGroup", group), ("githubConfigUrl", url)):
        whole = replace(whole, graph=put(RELEASE, "gpu", f"values/{key}", value)(whole.graph))
    (said,) = check_context(whole, only={"PAD033"}).violations
    assert said.severity == "info"
    assert "is not known here" in said.detail.message
    assert ("its runners have no group" in said.detail.message) is url.endswith("/app")
    assert "./inv doctor asks GitHub" in said.detail.fix


def test_privileged_runners_are_a_warning_whatever_their_group() -> None:
    violations = check_context(_context("docker"), only={"PAD033"}).violations
    assert [(violation.severity, "is root on its node" in violation.detail.message) for violation in violations] == [
        ("warning", True)
    ]
    (unprivileged,) = check_context(_context("smallest"), only={"PAD033"}).violations
    assert unprivileged.severity == "info"


_LOG_POD = "spec/template/spec"


@pytest.mark.parametrize(("rule", "breaking"), [
    ("PAD032", put("DaemonSet", "job-logs", f"{_LOG_POD}/containers/0/volumeMounts/0/readOnly", False)),
    ("PAD032", put("DaemonSet", "job-logs", f"{_LOG_POD}/volumes/0/hostPath/path", "/var/lib/kubelet")),
    ("PAD028", put("Namespace", "job-logs", "metadata/labels/pod-security.kubernetes.io~enforce", "baseline")),
])  # fmt: skip
def test_of_the_host_only_logs_are_read_where_that_is_explained(rule: str, breaking: Any) -> None:
    context = _context("job-logs")
    before = {entry.rule.id for entry in check_context(context).violations}

    assert {entry.rule.id for entry in check_context(replace(context, graph=breaking(context.graph))).violations} == {
        *before,
        rule,
    }
    assert rule not in before


@pytest.mark.parametrize("name", ["existing-cluster", "adopted-own-image"])
def test_nodes_of_an_adopted_cluster_may_need_the_cnis_policy(name: str) -> None:
    severities = {violation.severity for violation in check_context(_context(name), only={"PAD039"}).violations}
    assert severities <= {"info"}


def test_who_steers_jobs_may_read_the_credential_and_the_plan_says_so() -> None:
    (violation,) = check_context(_context("job-pods"), only={"PAD029"}).violations
    assert violation.severity == "info"
    assert "the account that steers jobs read github-credential" in violation.detail.message
    assert check_context(_context("smallest"), only={"PAD029"}).violations == ()


def _said(rule: str, runners: dict[str, Any], **parts: Any) -> list[tuple[str, str]]:
    """(severity, message) of what a rule says of runners, other than what only GitHub knows."""
    read = fleets.stack(fleets.fleet_data(runners=runners, **parts))
    violations = check_context(Context(plan_graph(read), fleet=read.fleet, today=TODAY), only={rule}).violations
    return [
        (violation.severity, violation.detail.message)
        for violation in violations
        if "is not known here" not in violation.detail.message
    ]


_DOCKER = {"pool": "t4", "container": "dind", "group": "forks"}


@pytest.mark.parametrize("container", ["none", "kubernetes-novolume"])
def test_nodes_of_root_jobs_are_not_shared_with_another_group(container: str) -> None:
    gpu = {"pool": "t4", "container": container, "labels": ["release"]}

    assert _said("PAD033", {"docker": _DOCKER, "gpu": gpu | {"group": "forks"}}) == []
    ((severity, message),) = _said("PAD033", {"docker": _DOCKER, "gpu": gpu | {"group": "releases"}})
    assert (severity, message.rpartition(": ")[2]) == ("warning", "gpu")


def test_nodes_of_root_jobs_are_not_those_of_served_models() -> None:
    ((severity, message),) = _said("PAD033", {"docker": _DOCKER}, serving=fleets.SERVING)
    assert (severity, message.rpartition(": ")[2]) == ("warning", "serving")


@pytest.mark.parametrize("container", ["none", "kubernetes-novolume"])
def test_a_claim_that_jobs_write_is_told_and_between_groups_warned_of(container: str) -> None:
    def runner(group: str, *, read_only: bool = False) -> dict[str, Any]:
        cache = {"claim": "ccache", "mount": "/cache", "readOnly": read_only}
        return {"pool": "t4", "container": container, "group": group, "labels": [group], "volumes": {"cache": cache}}

    assert [level for level, _ in _said("PAD033", {"a": runner("a")})] == ["info"]
    assert [level for level, _ in _said("PAD033", {"a": runner("a"), "b": runner("b")})] == ["warning", "warning"]
    ((level, message),) = _said("PAD033", {"a": runner("a"), "b": runner("b", read_only=True)})
    assert (level, message.rpartition(": ")[2]) == ("warning", "b")
    assert _said("PAD033", {"a": runner("a", read_only=True), "b": runner("b", read_only=True)}) == []


@pytest.mark.parametrize("value", [
    "https://pypi.example.com/simple", "https://$USER:$PASSWORD@pypi.example.com/simple", "ssh://git@example.com:22/x",
    "socks5h://proxy.example.com:1080", "a:b@c", "http://proxy.example.com:3128/@scope",
])  # fmt: skip
def test_an_address_without_a_password_is_no_credential(value: str) -> None:
    assert _said("PAD031", {"gpu": {"pool": "t4", "environment": {"PIP_INDEX_URL": value}}}) == []
