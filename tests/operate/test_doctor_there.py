"""Things that an account and a cluster have already, as the doctor says it before `pulumi up` meets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.operate.doctor.checks import there
from paddock.plan.engine import resource_types as types
from tests.operate.conftest import Examine, Examined, program
from tests.support import fleets
from tests.support.aws_account import DENIED, NUMBER, Refusal

ROLE = f"arn:aws:iam::{NUMBER}:role/ci/deployer"
PROVIDER = f"arn:aws:iam::{NUMBER}:oidc-provider/token.actions.githubusercontent.com"
URN = "urn:pulumi:dev::paddock::paddock:infra:"
VPC = {
    "existing": {"vpc": "vpc-0aaaaaaaaaaaaaaa0", "subnets": ["subnet-0aaaaaaaaaaaaaaa0", "subnet-0aaaaaaaaaaaaaaa1"]}
}
SHARED = {"existing": "shared", "version": "1.36"}
GROUP = "/aws/eks/paddock-dev/cluster"
Fleet = Callable[..., None]
State = Callable[..., None]


@pytest.fixture
def fleet(project: Path) -> Fleet:
    """Write keys of the fleet in the place of the example's."""
    file = project / "Pulumi.dev.yaml"

    def write(**parts: Any) -> None:
        document = yaml.safe_load(file.read_text())
        document["config"]["paddock:fleet"] |= parts
        file.write_text(yaml.safe_dump(document))

    return write


@pytest.fixture
def state(programs: Path) -> State:
    """Let `pulumi stack export` answer with these resources."""

    def write(*resources: Mapping[str, Any]) -> None:
        (programs / "state.json").write_text(json.dumps({"deployment": {"resources": list(resources)}}))
        program(programs, "pulumi", f'[ "$1" = stack ] && exec cat {programs / "state.json"}\necho v3.259.0')

    write()
    return write


def held(parent: str, type_: str, name: str, id_: str, **more: Any) -> dict[str, Any]:
    """Return a resource as the state has it."""
    return {"urn": f"{URN}{parent}${type_}::{name}", "type": type_, "id": id_, **more}


def cluster(version: str = "1.36", status: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    return {"eks.DescribeCluster": {"cluster": {"name": "x", "version": version, "status": status, **more}}}


OWN = held("Cluster$eks:index:Cluster", types.CLUSTER, "cluster-eksCluster", "paddock-dev")
EMPTY: dict[str, Any] = {
    "eks.ListAddons": {"addons": []},
    "eks.ListPodIdentityAssociations": {"associations": []},
    "eks.ListAccessEntries": {"accessEntries": [ROLE]},
    "eks.DescribeAccessEntry": {"accessEntry": {"principalArn": ROLE}},
    "eks.ListAssociatedAccessPolicies": {
        "associatedAccessPolicies": [
            {
                "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
                "accessScope": {"type": "cluster"},
            }
        ]
    },
}
"""A cluster with nothing but its deployer's entry."""


def failed(examined: Examined, area: str) -> dict[str, str]:
    return {r.subject: r.message for r in examined.report.results if r.area == area and r.status == "fail"}


# --- log groups, repositories


def groups(*names: str, **more: Any) -> dict[str, Any]:
    return {"logs.DescribeLogGroups": {"logGroups": [{"logGroupName": name, **more} for name in names]}}


def test_log_group_that_came_back_fails_with_import_and_removal(examination: Examine, state: State) -> None:
    line = examination(groups(f"{GROUP}-of-others", GROUP)).line("already there", GROUP)
    assert (line.status, "not in this stack's state" in line.message) == ("fail", True)
    urn = f"{URN}Cluster::cluster"
    assert f"--target '{urn}' && pulumi import aws:cloudwatch/logGroup:LogGroup cluster-logs '{GROUP}'" in line.fix
    assert (
        f"--parent 'parent={urn}' --provider 'provider=urn:pulumi:dev::paddock::pulumi:providers:aws::aws'" in line.fix
    )
    assert line.fix.endswith(f"aws logs delete-log-group --region us-west-2 --log-group-name {GROUP}")


def test_import_needs_no_up_where_the_parent_is_in_the_state(examination: Examine, state: State) -> None:
    parents = ("urn:pulumi:dev::paddock::pulumi:providers:aws::aws", f"{URN}Cluster::cluster")
    state(*({"urn": urn, "type": urn.split("::")[2]} for urn in parents))
    assert examination(groups(GROUP)).line("already there", GROUP).fix.startswith("pulumi import ")


def test_name_that_the_state_holds_is_the_stacks_own(examination: Examine, state: State) -> None:
    state(held("Cluster", types.LOG_GROUP, "cluster-logs", GROUP))
    line = examination(groups(GROUP)).line("already there", "log groups")
    assert (line.status, line.message) == ("pass", f"{GROUP} this stack's own")


@pytest.mark.parametrize(
    ("key", "tags", "status"),
    [
        ({}, DENIED, "fail"),
        ({"kmsKeyId": "k"}, DENIED, "unknown"),
        ({"kmsKeyId": "k"}, {"ResourceTagMappingList": []}, "fail"),
        (
            {"kmsKeyId": "k"},
            {"ResourceTagMappingList": [{"Tags": [{"Key": "paddock:fleet", "Value": "paddock-dev"}]}]},
            "pass",
        ),
    ],
)
def test_without_a_state_key_and_tag_say_whose_a_group_is(
    examination: Examine, programs: Path, key: Mapping[str, str], tags: Any, status: str
) -> None:
    program(programs, "pulumi", '[ "$1" = stack ] && { echo "error: not logged in" >&2; exit 1; }\necho v3.259.0')
    arn = {"logGroupArn": f"arn:aws:logs:us-west-2:{NUMBER}:log-group:{GROUP}"}
    examined = examination({**groups(GROUP, **arn, **key), "resourcegroupstaggingapi.GetResources": tags})
    (line,) = (r for r in examined.report.results if r.area == "already there" and GROUP in f"{r.subject}{r.message}")
    assert line.status == status


def test_state_that_was_never_made_holds_nothing(examination: Examine, programs: Path) -> None:
    program(programs, "pulumi", '[ "$1" = stack ] && { echo "error: no stack named dev found" >&2; exit 1; }\necho v3')
    assert examination(groups(GROUP, kmsKeyId="k")).line("already there", GROUP).status == "fail"


def test_repository_of_another_is_named(examination: Examine, state: State) -> None:
    def repositories(parameters: dict[str, Any]) -> dict[str, Any]:
        (name,) = parameters["repositoryNames"]
        if name != "paddock-dev/runner-gpu":
            raise Refusal("RepositoryNotFoundException")
        return {"repositories": [{"repositoryName": name}]}

    taken = failed(examination({"ecr.DescribeRepositories": repositories}), "already there")
    assert list(taken) == ["paddock-dev/runner-gpu"]


def test_every_fixed_name_of_the_program_is_looked_for() -> None:
    asked = {kind.type for kind in there.KINDS} | {types.CLUSTER}
    resources = (item for name in fleets.SAMPLES for item in fleets.graph(name).resources.values())
    named = {item.type for item in resources if item.type.startswith("aws:") and "name" in item.inputs}
    assert named - asked == set(), "a kind of paddock.operate.doctor.checks.there reads each"


def test_alarm_of_another_stack_would_be_overwritten(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(monitoring={"enabled": True, "cloudwatch": {}})
    alarms = {"MetricAlarms": [{"AlarmName": "paddock-paddock-dev-GpuTooHot"}]}
    line = examination({"cloudwatch.DescribeAlarms": alarms}).line("already there", "GpuTooHot")
    assert (line.status, line.message.endswith("pulumi up overwrites it")) == ("fail", True)


# --- GitHub's provider


def with_provider(*arns: str) -> dict[str, Any]:
    return {"iam.ListOpenIDConnectProviders": {"OpenIDConnectProviderList": [{"Arn": arn} for arn in arns]}}


def test_provider_of_the_account_fails_with_the_key_that_names_it(
    examination: Examine, fleet: Fleet, state: State
) -> None:
    fleet(images={"push": {"repository": "pytorch/images"}})
    other = f"arn:aws:iam::{NUMBER}:oidc-provider/gitlab.com"
    assert failed(examination(with_provider(other)), "already there") == {}
    line = examination(with_provider(other, PROVIDER)).line("already there", "token.actions")
    assert line.status == "fail"
    assert line.fix.startswith(f"images.push.provider: {PROVIDER}; or, ")


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"ClientIDList": ["x", "sts.amazonaws.com"]}, "pass", "takes tokens for sts.amazonaws.com"),
        ({"ClientIDList": ["x"]}, "fail", "takes tokens for x"),
        (Refusal("NoSuchEntity"), "fail", "the account has no arn:aws:iam::"),
        (DENIED, "unknown", "AWS denies iam:GetOpenIDConnectProvider"),
    ],
)
def test_named_provider_must_take_the_tokens_of_workflows(
    examination: Examine, fleet: Fleet, answer: Any, status: str, words: str
) -> None:
    fleet(images={"push": {"repository": "pytorch/images", "provider": PROVIDER}})
    examined = examination({**with_provider(PROVIDER), "iam.GetOpenIDConnectProvider": answer})
    line = examined.line("already there", "images.push.provider")
    assert (line.status, words in line.message) == (status, True)
    assert examined.account.called("iam.ListOpenIDConnectProviders") == [], "nothing is made that could be taken"


def test_provider_of_the_own_state_is_let_go_before_it_is_named(
    examination: Examine, fleet: Fleet, state: State
) -> None:
    fleet(images={"push": {"repository": "pytorch/images", "provider": PROVIDER}})
    answer = {"iam.GetOpenIDConnectProvider": {"ClientIDList": ["sts.amazonaws.com"]}}
    own = held("ImagePush", types.OPEN_ID_CONNECT_PROVIDER, "image-push", PROVIDER)
    state(own)
    line = examination(answer).line("already there", "images.push.provider")
    assert (line.status, line.fix.startswith(f"pulumi state delete '{own['urn']}'")) == ("fail", True)
    state({**own, "retainOnDelete": True})
    assert examination(answer).line("already there", "images.push.provider").status == "pass"


# --- who deploys


def access(**entries: Any) -> dict[str, Any]:
    return {"version": "1.36", "endpoint": {"allow": ["198.18.0.0/15"]}, "access": entries}


ADMIN = {"principal": f"arn:aws:iam::{NUMBER}:role/Platform", "policy": "cluster-admin"}


@pytest.mark.parametrize(
    ("entries", "status", "words", "fix"),
    [
        ({}, "pass", f"makes {ROLE} an administrator", ""),
        ({"ci": {"principal": ROLE, "policy": "cluster-admin"}}, "pass", "is cluster.access.ci", ""),
        (
            {"ci": {"principal": ROLE, "policy": "view"}},
            "fail",
            "one access entry a principal",
            f"cluster.access.ci: {{principal: {ROLE}, policy: cluster-admin}}",
        ),
        (
            {"ci": {"principal": ROLE, "policy": "cluster-admin", "namespaces": ["arc-*"]}, "platform": ADMIN},
            "fail",
            "the cluster refuses its first chart",
            f"cluster.access.ci: {{principal: {ROLE}, policy: cluster-admin}}",
        ),
        (
            {"platform": ADMIN, "deployer": {"principal": f"arn:aws:iam::{NUMBER}:role/Old"}},
            "fail",
            "the administrators are cluster.access.platform",
            f"cluster.access.deployer-2: {{principal: {ROLE}, policy: cluster-admin}}",
        ),
        (
            {"ci": {"principal": f"arn:aws:iam::{NUMBER}:role/deployer", "policy": "cluster-admin"}},
            "fail",
            f"EKS knows the role by its path: {ROLE}",
            f"cluster.access.ci.principal: {ROLE}",
        ),
    ],
)
def test_deployer_must_be_an_administrator_of_a_new_cluster(
    examination: Examine, fleet: Fleet, entries: Any, status: str, words: str, fix: str
) -> None:
    fleet(cluster=access(**entries))
    line = examination().line("permissions", "cluster access")
    assert (line.status, line.fix) == (status, fix)
    assert words in line.message


def test_unreadable_cluster_leaves_the_deployer_failing(examination: Examine, fleet: Fleet) -> None:
    fleet(cluster=access(platform=ADMIN))
    line = examination({"eks.DescribeCluster": DENIED}).line("permissions", "cluster access")
    assert (line.status, "eks:DescribeCluster" in line.message) == ("fail", True)


def test_path_that_cannot_be_read_leaves_the_role_the_same(examination: Examine, fleet: Fleet) -> None:
    fleet(cluster=access(ci={"principal": ROLE, "policy": "cluster-admin"}))
    assert examination({"iam.GetRole": DENIED}).line("permissions", "cluster access").status == "pass"


def test_entry_made_by_hand_lets_the_deployer_in(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(cluster=access(platform=ADMIN))
    state(OWN)
    assert examination({**cluster(), **EMPTY}).line("permissions", "cluster access").status == "pass"


def test_entry_of_the_program_goes_when_an_administrator_is_listed(
    examination: Examine, fleet: Fleet, state: State
) -> None:
    fleet(cluster=access(platform=ADMIN))
    state(OWN, held("Cluster", types.ACCESS_ENTRY, "cluster-deployer", f"paddock-dev:{ROLE}"))
    line = examination({**cluster(), **EMPTY}).line("permissions", "cluster access")
    assert (line.status, "goes with this pulumi up" in line.message) == ("fail", True)


def test_second_deployer_is_not_let_in_by_the_firsts_entry(examination: Examine, state: State) -> None:
    first = f"arn:aws:iam::{NUMBER}:role/Laptop"
    entry = held("Cluster", types.ACCESS_ENTRY, "cluster-deployer", f"x:{first}", inputs={"principalArn": first})
    state(OWN, entry)
    answers = {**cluster(), **EMPTY, "eks.ListAccessEntries": {"accessEntries": [first]}}
    line = examination(answers).line("permissions", "cluster access")
    assert (line.status, f"lets in {first}" in line.message) == ("fail", True)


def test_entry_that_is_there_is_imported_not_made(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(cluster=access(platform=ADMIN))
    state(OWN)
    answers = {**cluster(), **EMPTY, "eks.ListAccessEntries": {"accessEntries": [ROLE, ADMIN["principal"]]}}
    line = examination(answers).line("already there", ADMIN["principal"])
    assert line.status == "fail"
    assert f"pulumi import {types.ACCESS_ENTRY} cluster-platform 'paddock-dev:{ADMIN['principal']}'" in line.fix


def test_entry_of_the_deployer_that_is_listed_now_moves_within_the_state(
    examination: Examine, fleet: Fleet, state: State
) -> None:
    fleet(cluster=access(ci={"principal": ROLE, "policy": "cluster-admin"}))
    entry = held("Cluster", types.ACCESS_ENTRY, "cluster-deployer", f"paddock-dev:{ROLE}")
    state(OWN, entry)
    line = examination({**cluster(), **EMPTY}).line("already there", ROLE)
    assert (line.status, "for eks AccessEntry cluster-deployer of this stack" in line.message) == ("fail", True)
    assert line.fix.startswith(f"pulumi state delete '{entry['urn']}' --target-dependents --yes --stack dev && ")


@pytest.mark.parametrize(
    ("mode", "entries", "status"),
    [
        ("API", [ROLE], "pass"),
        ("API", [], "fail"),
        ("API_AND_CONFIG_MAP", [], "unknown"),
        ("CONFIG_MAP", [ROLE], "unknown"),
    ],
)
def test_adopted_cluster_must_let_the_deployer_in(
    examination: Examine, fleet: Fleet, mode: str, entries: list[str], status: str
) -> None:
    fleet(cluster=SHARED, network=VPC)
    answers = {**cluster(accessConfig={"authenticationMode": mode}), **EMPTY}
    line = examination({**answers, "eks.ListAccessEntries": {"accessEntries": entries}}).line(
        "permissions", "cluster access"
    )
    assert line.status == status
    assert ("create-access-entry" in line.fix) == (status == "fail")


# --- the cluster


def insights(*rows: tuple[str, str]) -> dict[str, Any]:
    listed = [
        {"id": name, "name": name, "kubernetesVersion": "1.36", "insightStatus": {"status": status, "reason": "why"}}
        for name, status in rows
    ]
    return {"eks.ListInsights": {"insights": listed}}


def lines(examined: Examined, subject: str) -> list[tuple[str, str]]:
    return [(r.status, r.message) for r in examined.report.results if r.subject == subject]


def test_upgrade_insights_that_do_not_pass_are_named_worst_first(examination: Examine, state: State) -> None:
    state(OWN)
    found = insights(("skew", "PASSING"), ("apis", "WARNING"), ("add-on", "ERROR"), ("health", "UNKNOWN"))
    advice = {"eks.DescribeInsight": lambda p: {"insight": {"recommendation": f"mend {p['id']}"}}}
    examined = examination({**cluster("1.35"), **EMPTY, **found, **advice})
    assert lines(examined, "upgrade to 1.36") == [
        ("fail", "add-on: why"), ("unknown", "health: why"), ("warn", "apis: why"),
    ]  # fmt: skip
    assert [r.fix for r in examined.report.results if r.message == "add-on: why"] == ["mend add-on"]
    (asked,) = examined.account.called("eks.ListInsights")
    assert asked["filter"] == {"categories": ["UPGRADE_READINESS"], "kubernetesVersions": ["1.36"]}


def test_insight_without_its_recommendation_still_fails(examination: Examine, state: State) -> None:
    state(OWN)
    examined = examination({**cluster("1.35"), **EMPTY, **insights(("add-on", "ERROR"))})
    assert lines(examined, "upgrade to 1.36") == [("fail", "add-on: why")]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (insights(("a", "PASSING"), ("b", "PASSING")), ("pass", "all 2 upgrade insights of EKS pass")),
        (insights(), ("unknown", "EKS has not looked yet at what an upgrade to 1.36 meets: it does once a day")),
    ],
)
def test_upgrade_without_faults_says_what_was_asked(
    examination: Examine, state: State, found: Any, expected: tuple[str, str]
) -> None:
    state(OWN)
    assert lines(examination({**cluster("1.35"), **EMPTY, **found}), "upgrade to 1.36") == [expected]


@pytest.mark.parametrize(
    ("status", "tags", "fix"),
    [
        ("DELETING", {}, "aws eks wait cluster-deleted "),
        ("ACTIVE", {"paddock:fleet": "paddock-dev"}, "the state of the stack that made it (pulumi stack import "),
        ("ACTIVE", {"paddock:fleet": "other"}, "name: another one"),
    ],
)
def test_a_cluster_that_goes_or_was_lost_is_not_foreign(
    examination: Examine, state: State, status: str, tags: dict[str, str], fix: str
) -> None:
    line = examination({**cluster("1.36", status, tags=tags), **EMPTY}).line("software", "cluster paddock-dev")
    assert (line.status, line.fix.startswith(fix)) == ("fail", True)


@pytest.mark.parametrize(
    ("version", "status", "fix"),
    [
        ("1.36", "ACTIVE", ""),
        ("1.34", "ACTIVE", 'cluster.version: "1.35" first'),
        ("1.37", "ACTIVE", 'cluster.version: "1.37"'),
        ("1.35", "UPDATING", "aws eks wait cluster-active --region us-west-2 --name paddock-dev"),
        ("1.36", "DELETING", "aws eks wait cluster-deleted --region us-west-2 --name paddock-dev"),
        ("1.36", "FAILED", "aws eks describe-cluster --region us-west-2 --name paddock-dev"),
    ],
)
def test_version_and_state_of_the_own_cluster(
    examination: Examine, state: State, version: str, status: str, fix: str
) -> None:
    state(OWN)
    line = examination({**cluster(version, status), **EMPTY}).line("software", "cluster paddock-dev")
    assert (line.status, line.fix) == ("fail" if fix else "pass", fix)


def test_cluster_of_another_stack_with_the_fleets_name_fails(examination: Examine, state: State) -> None:
    examined = examination({**cluster(tags={"paddock:fleet": "paddock-dev"}), **EMPTY})
    line = examined.line("software", "cluster paddock-dev")
    assert (line.status, "not in the state of stack dev" in line.message) == ("fail", True)
    assert [r.subject for r in examined.report.results if r.area == "already there"][:1] == ["log groups"]


def test_cluster_without_the_fleets_tag_fails_without_a_state(examination: Examine) -> None:
    assert examination(cluster(tags={})).line("software", "cluster paddock-dev").status == "fail"
    assert examination(cluster()).line("software", "cluster paddock-dev").status == "pass"


# --- things of an adopted cluster


VOLUME = {"gpu": {"pool": "t4", "volumes": {"data": {"volume": "100Gi", "mount": "/data"}}}}


def test_add_on_of_an_adopted_cluster_fails_with_the_key(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(cluster=SHARED, network=VPC, runners=VOLUME)
    answers = {**cluster(), **EMPTY, "eks.ListAddons": {"addons": ["vpc-cni", "aws-ebs-csi-driver"]}}
    line = examination(answers).line("already there", "aws-ebs-csi-driver")
    assert line.status == "fail"
    assert line.fix.startswith("cluster.present: [aws-ebs-csi-driver]; or, to have pulumi up manage it: ")
    assert "pulumi import aws:eks/addon:Addon addons-aws-ebs-csi-driver 'shared:aws-ebs-csi-driver'" in line.fix
    fleet(cluster={**SHARED, "present": ["aws-ebs-csi-driver"]})
    assert failed(examination(answers), "already there") == {}
    assert examination(answers).line("already there", "cluster.present").status == "pass"
    assert (
        examination({**answers, "eks.ListAddons": {"addons": []}}).line("already there", "cluster.present").status
        == "warn"
    )


def test_pod_identity_of_another_autoscaler_is_named(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(cluster=SHARED, network=VPC)
    own = {"associationId": "a-1", "namespace": "kube-system", "serviceAccount": "cluster-autoscaler"}
    answers = {**cluster(), **EMPTY, "eks.ListPodIdentityAssociations": {"associations": [own]}}
    line = examination(answers).line("already there", "cluster-autoscaler")
    assert line.status == "fail"
    assert "pulumi import aws:eks/podIdentityAssociation:PodIdentityAssociation autoscaler 'shared,a-1'" in line.fix
    assert "--cluster-name shared --association-id a-1" in line.fix.partition("pulumi import")[0]


def test_role_of_a_driver_that_somebody_installed_is_named(examination: Examine, fleet: Fleet, state: State) -> None:
    fleet(cluster=SHARED, network=VPC, runners=VOLUME)
    theirs = {"associationId": "a-2", "namespace": "kube-system", "serviceAccount": "ebs-csi-controller-sa"}
    answers = {**cluster(), **EMPTY, "eks.ListPodIdentityAssociations": {"associations": [theirs]}}
    line = examination(answers).line("already there", "ebs-csi-controller-sa")
    assert line.fix.startswith("cluster.present: [aws-ebs-csi-driver]; or aws eks delete-pod-identity-association")


# --- endpoints


def test_endpoint_of_others_with_the_services_name_fails(examination: Examine, fleet: Fleet) -> None:
    fleet(network={"endpoints": ["sts", "ecr.api"]})
    own = [{"Key": "paddock:fleet", "Value": "paddock-dev"}]
    rows = [
        {"VpcEndpointId": "vpce-1", "ServiceName": "com.amazonaws.us-west-2.sts", "PrivateDnsEnabled": True},
        {"VpcEndpointId": "vpce-2", "ServiceName": "com.amazonaws.us-west-2.guardduty-data", "RequesterManaged": True},
        {"VpcEndpointId": "vpce-3", "ServiceName": "com.amazonaws.us-west-2.ecr.api", "PrivateDnsEnabled": True,
         "Tags": own},
    ]  # fmt: skip
    interfaces = [
        {"NetworkInterfaceId": "eni-1", "InterfaceType": "interface", "Description": "RDSNetworkInterface",
         "RequesterManaged": True, "RequesterId": "amazon-rds", "Status": "in-use"},
        {"NetworkInterfaceId": "eni-2", "InterfaceType": "interface", "Status": "in-use", "TagSet": own},
        {"NetworkInterfaceId": "eni-3", "InterfaceType": "interface", "Status": "in-use",
         "Description": "Amazon EKS paddock-dev"},
    ]  # fmt: skip
    examined = examination(
        {
            "ec2.DescribeVpcs": {"Vpcs": [{"VpcId": "vpc-0123456789abcdef0"}]},
            "ec2.DescribeNetworkInterfaces": {"NetworkInterfaces": interfaces},
            "ec2.DescribeVpcEndpoints": {"VpcEndpoints": rows},
        }
    )
    assert list(failed(examined, "already there")) == ["vpce-1"]
    assert "network.endpoints without sts" in examined.line("already there", "vpce-1").fix
    line = examined.line("already there", "endpoints in vpc-0123456789abcdef0")
    assert "vpce-2 (com.amazonaws.us-west-2.guardduty-data, made by AWS)" in line.message
    assert "vpce-3" not in line.message
    line = examined.line("already there", "interfaces in vpc-0123456789abcdef0")
    assert "RDSNetworkInterface" in line.message
    assert "eni-2" not in line.message
    assert "Amazon EKS" not in line.message
