"""The program before the real Terraform AWS provider: its validation, its plan, and what it makes in a stand-in's AWS.

pulumi-aws wraps this provider, so what it refuses or plans is what `pulumi up` would meet. AWS itself is moto.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support import fleets
from tests.support.terraform_config import Configuration, configuration, without
from tests.support.terraform_run import MOTO, PLUGINS, TERRAFORM, Terraform, moto

MISSING = [
    name
    for name, path in (
        ("terraform on PATH", TERRAFORM),
        ("a folder with its AWS provider in PADDOCK_TF_PLUGINS", PLUGINS),
        ("moto_server on PATH or in PADDOCK_MOTO_SERVER", MOTO),
    )
    if not path
]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("terraform"),
    pytest.mark.skipif(bool(MISSING), reason=f"terraform cannot run: no {', no '.join(MISSING)}"),
]

UNSAID: Mapping[str, str] = {
    "aws_eks_cluster.deletion_protection": "came with 6: hashicorp/terraform-provider-aws#43779",
    "aws_eks_node_group.update_config.update_strategy": "came with 6: hashicorp/terraform-provider-aws#41487",
}
"""What the program sets and this provider, 5.100, does not know: pulumi-aws 7.51 wraps one of the 6 line."""

NOT_IN_MOTO: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "aws_eks_access_entry": (
        "eks",
        "create_access_entry",
        {"clusterName": "c", "principalArn": "arn:aws:iam::1:role/r"},
    ),
    "aws_eks_access_policy_association": (
        "eks",
        "associate_access_policy",
        {"clusterName": "c", "principalArn": "r", "policyArn": "p", "accessScope": {"type": "cluster"}},
    ),
    "aws_eks_addon": ("eks", "create_addon", {"clusterName": "c", "addonName": "coredns"}),
    "aws_eks_pod_identity_association": (
        "eks",
        "create_pod_identity_association",
        {"clusterName": "c", "namespace": "n", "serviceAccount": "s", "roleArn": "r"},
    ),
    "aws_imagebuilder_component": (
        "imagebuilder",
        "create_component",
        {"name": "c", "semanticVersion": "1.0.0", "platform": "Linux", "data": "x"},
    ),
    "aws_imagebuilder_distribution_configuration": (
        "imagebuilder",
        "create_distribution_configuration",
        {"name": "d", "distributions": [{"region": "us-west-2"}]},
    ),
    "aws_imagebuilder_image_pipeline": (
        "imagebuilder",
        "create_image_pipeline",
        {
            "name": "p",
            "infrastructureConfigurationArn": "arn:aws:imagebuilder:us-west-2:1:infrastructure-configuration/i",
        },
    ),
    "aws_imagebuilder_image_recipe": (
        "imagebuilder",
        "create_image_recipe",
        {"name": "r", "semanticVersion": "1.0.0", "components": [{"componentArn": "c"}], "parentImage": "ami-1"},
    ),
    "aws_imagebuilder_infrastructure_configuration": (
        "imagebuilder",
        "create_infrastructure_configuration",
        {"name": "i", "instanceProfileName": "p"},
    ),
}
"""Types of which moto has no call to make one: the client, its method, and arguments that a service would look at."""

FORGOTTEN: Mapping[tuple[str, str], str] = {
    ("aws_eks_cluster", "access_config"): "moto does not keep it",
    ("aws_eks_cluster", "upgrade_policy"): "moto does not keep it",
    ("aws_eks_cluster", "vpc_config"): "moto gives no VPC and no security group of the cluster's own",
    ("aws_eks_node_group", "node_repair_config"): "moto does not keep it",
    ("aws_eks_node_group", "remote_access"): "moto makes up an SSH key that nobody asked for",
    ("aws_eks_node_group", "update_config"): "moto does not keep it",
    ("aws_launch_template", "tag_specifications"): "moto gives the template's own tags back as one more specification",
}
"""What a plan after the apply would change, for moto's answer is not what AWS's would be."""

SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:paddock/github-app-AbCdEf"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Callable[[str], Any]:
    session = boto3.Session("testing", "testing", region_name="us-west-2")
    once = Config(retries={"total_max_attempts": 1})
    return cache(lambda service: session.client(service, endpoint_url=url, config=once))


@pytest.fixture(scope="module")
def terraform(url: str, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    return Terraform(tmp_path_factory.mktemp("terraform"), Path(str(PLUGINS)), url)


@pytest.fixture(scope="module")
def written(terraform: Terraform, client: Callable[[str], Any]) -> Mapping[str, Configuration]:
    """Return the configuration of every fleet, with what it expects to find in the account there."""
    client("eks").create_cluster(name="shared", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig={})
    arn = client("secretsmanager").create_secret(Name="paddock/github-app", SecretString="{}")["ARN"]
    configurations = {name: configuration(fleets.named(name), terraform.schema) for name in fleets.ALL}
    # moto makes up the end of a secret's ARN.
    return {
        name: replace(configuration_, document=json.loads(json.dumps(configuration_.document).replace(SECRET, arn)))
        for name, configuration_ in configurations.items()
    }


def test_what_the_program_sets_the_provider_knows(written: Mapping[str, Configuration]) -> None:
    assert {argument for configuration_ in written.values() for argument in configuration_.unsaid} == set(UNSAID)


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_every_aws_resource_is_in_the_configuration(name: str, written: Mapping[str, Configuration]) -> None:
    declared = [r for r in fleets.graph(name).resources.values() if r.custom and r.type.startswith("aws:")]
    assert sorted(written[name].names.values()) == sorted(resource.urn for resource in declared)


def test_the_provider_accepts_every_fleet(terraform: Terraform, written: Mapping[str, Configuration]) -> None:
    """The examples whole; of every other fleet what none before it had, and what that refers to."""
    covered: set[str] = set()
    documents = {name: _only_new(name, configuration_.document, covered) for name, configuration_ in written.items()}
    for name in fleets.EXAMPLES:
        documents[name] = written[name].document
    expected = {f"module.{name}.{at}": "create" for name, document in documents.items() for at in _resources(document)}
    assert len(expected) > len(covered) > 180
    terraform.use_together({name: document for name, document in documents.items() if _resources(document)})

    assert terraform.plan() == (expected, []), "it validates first"


def test_the_provider_refuses_mistakes(terraform: Terraform, written: Mapping[str, Configuration]) -> None:
    document = json.loads(json.dumps(written["prod"].document))
    # None needs another: Terraform does not look at what stands behind a mistake.
    mistakes = {
        "aws_cloudwatch_log_group.network-flow": ("retention_in_days", 366),
        "aws_ecr_lifecycle_policy.registry-runner-gpu": ("policy", "rules"),
        "aws_eks_addon.addons-eks-node-monitoring-agent": ("resolve_conflicts_on_update", "OVERRIDE"),
        "aws_eks_node_group.t4-spot": ("capacity_type", "spot"),
        "aws_iam_role.image-push": ("max_session_duration", 60),
        "aws_iam_role_policy.autoscaler-policy": ("policy", "{"),
        "aws_kms_key.gpu-ami": ("deletion_window_in_days", 3),
    }
    for at, (argument, value) in mistakes.items():
        type_, name = at.split(".")
        document["resource"][type_][name][argument] = value
    terraform.use(document)

    assert {problem.address for problem in terraform.validate()} == set(mistakes)


class Story:
    """Prod in moto's AWS, from nothing to nothing. Each step runs once, after the one before it."""

    def __init__(self, terraform: Terraform, document: Mapping[str, Any], client: Callable[[str], Any]) -> None:
        self.document = without(document, set(NOT_IN_MOTO))
        before = inventory(client)
        terraform.use(self.document)
        self.refused = terraform.apply()
        self.made = terraform.managed_addresses()
        self.planned = terraform.plan()
        self.differences = terraform.differences()
        self.there = inventory(client)
        self.kept = terraform.destroy()
        self.left = {kind: added for kind, present in inventory(client).items() if (added := present - before[kind])}


@pytest.fixture(scope="module")
def story(terraform: Terraform, written: Mapping[str, Configuration], client: Callable[[str], Any]) -> Story:
    return Story(terraform, written["prod"].document, client)


def test_all_that_moto_knows_is_made(story: Story) -> None:
    assert story.refused == []
    assert story.made == set(_resources(story.document))
    assert len(story.made) > 60
    assert all(story.there.values()), "an inventory that sees nothing proves nothing"


def test_a_second_plan_is_empty_but_for_what_moto_forgets(story: Story) -> None:
    actions, problems = story.planned
    assert (set(actions.values()) - {"replace", "update"}, problems) == (set(), [])
    assert story.differences == set(FORGOTTEN)


def test_destroy_leaves_nothing(story: Story) -> None:
    assert story.kept == []
    assert story.left == {}


@pytest.mark.parametrize("type_", NOT_IN_MOTO)
def test_moto_still_does_not_know(type_: str, client: Callable[[str], Any], terraform: Terraform) -> None:
    service, method, arguments = NOT_IN_MOTO[type_]
    assert type_ in terraform.schema["resource_schemas"]
    with pytest.raises(ClientError) as refused:
        getattr(client(service), method)(**arguments)
    # What it knows it answers in JSON; this is the web server speaking.
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (404, 500)
    assert re.search(r"^\d+$|Not Found|Internal", refused.value.response["Error"]["Code"]), (
        f"moto knows {method} now: take {type_} from the list"
    )


def inventory(client: Callable[[str], Any]) -> dict[str, set[str]]:
    """Return the existing objects of each kind that the fleet creates, as the services list them."""
    ec2 = client("ec2")
    alive = [{"Name": "state", "Values": ["pending", "available"]}]
    return {
        "clusters": set(client("eks").list_clusters()["clusters"]),
        "addresses": {address["AllocationId"] for address in ec2.describe_addresses()["Addresses"]},
        "endpoints": {
            endpoint["VpcEndpointId"]
            for endpoint in ec2.describe_vpc_endpoints()["VpcEndpoints"]
            if endpoint["State"].lower() != "deleted"
        },
        "flow logs": {log["FlowLogId"] for log in ec2.describe_flow_logs()["FlowLogs"]},
        "internet gateways": {
            gateway["InternetGatewayId"] for gateway in ec2.describe_internet_gateways()["InternetGateways"]
        },
        "launch templates": {
            template["LaunchTemplateId"] for template in ec2.describe_launch_templates()["LaunchTemplates"]
        },
        "NAT gateways": {gateway["NatGatewayId"] for gateway in ec2.describe_nat_gateways(Filter=alive)["NatGateways"]},
        "route tables": {table["RouteTableId"] for table in ec2.describe_route_tables()["RouteTables"]},
        "security groups": {group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]},
        "subnets": {subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]},
        "VPCs": {vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"]},
        "repositories": {
            repository["repositoryName"] for repository in client("ecr").describe_repositories()["repositories"]
        },
        "instance profiles": {
            profile["InstanceProfileName"] for profile in client("iam").list_instance_profiles()["InstanceProfiles"]
        },
        "identity providers": {
            provider["Arn"] for provider in client("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"]
        },
        "roles": {role["RoleName"] for role in client("iam").list_roles()["Roles"]},
        # AWS deletes a key weeks after it is asked to.
        "keys": {
            key["KeyId"]
            for key in client("kms").list_keys()["Keys"]
            if client("kms").describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] != "PendingDeletion"
        },
        "log groups": {group["logGroupName"] for group in client("logs").describe_log_groups()["logGroups"]},
    }


def _resources(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arguments by address."""
    resources = document.get("resource", {})
    return {f"{type_}.{name}": body for type_, named in resources.items() for name, body in named.items()}


def _only_new(fleet: str, document: Mapping[str, Any], earlier: set[str]) -> dict[str, Any]:
    """Return the configuration with those resources alone that are not `earlier` yet, and those they refer to."""
    there = _resources(document)
    renamed = {
        at: json.dumps([at.split(".")[0], body]).replace(f"paddock-{fleet}", "paddock") for at, body in there.items()
    }
    pending = [at for at in there if renamed[at] not in earlier]
    earlier |= set(renamed.values())
    new: dict[str, dict[str, Any]] = {}
    while pending:
        at = pending.pop()
        type_, name = at.split(".")
        body = new.setdefault(type_, {})[name] = {
            key: argument for key, argument in there[at].items() if key != "depends_on"
        }
        references = re.findall(r"\$\{(aws_\w+\.[\w-]+)", json.dumps(body))
        pending += [
            reference for reference in references if reference.split(".")[1] not in new.get(reference.split(".")[0], {})
        ]
    return {**document, "resource": new} if new else {}
