"""Holders of a thing that AWS would not delete, asked of moto; and things that may be another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import boto3
import pytest
from moto import mock_aws

from paddock.operate.destroy import held, leftovers
from paddock.operate.destroy.report import PERHAPS
from paddock.operate.inventory import holders, made_by_others
from paddock.operate.inventory.made_by_others import Scope
from paddock.operate.inventory.things import Thing, of_answer
from paddock.operate.sources.aws import AwsReader
from paddock.pulumi_cli.events import Diagnostic
from paddock.pulumi_cli.stack import PulumiError, Resource, Run
from tests.support.aws_account import NUMBER, REGION, Account
from tests.support.left_behind import TRUST, LeftBehind, nothing_left

FLEET = "paddock-dev"
ROLE = f"arn:aws:iam::{NUMBER}:role/cluster"


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeftBehind]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with mock_aws():
        yield LeftBehind(FLEET, REGION)


def commands(kind: str, id_: str) -> set[str]:
    return {leftovers.removal(thing) for thing in holders.read(AwsReader(REGION), kind, id_)}


def test_a_vpc_is_held_by_all_that_is_in_it(left: LeftBehind) -> None:
    things = left.things
    said = commands("ec2:vpc", left.vpc)
    assert said >= {
        f"aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {left.endpoint}",
        f"aws ec2 delete-security-group --group-id {things['group of GuardDuty']}",
        f"aws ec2 delete-network-interface --network-interface-id {things['interface of the CNI']}",
        f"aws ec2 terminate-instances --instance-ids {things['instance']}",
        f"aws ec2 delete-subnet --subnet-id {left.subnets[1]}",
    }
    assert not [command for command in said if things["interface of a database"] in command]


def test_a_group_is_held_by_interfaces_and_by_rules_of_others(left: LeftBehind) -> None:
    group = left.ec2.create_security_group(GroupName="ours", Description="x", VpcId=left.vpc)["GroupId"]
    other = left.things["group of EKS"]
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "UserIdGroupPairs": [{"GroupId": group}]}
    left.ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[rule])
    made = left.ec2.create_network_interface(SubnetId=left.subnets[0], Groups=[group], Description="ELB net/arc/0a")
    owner = made["NetworkInterface"]["OwnerId"]
    balancer = f"arn:aws:elasticloadbalancing:{REGION}:{owner}:loadbalancer/net/arc/0a"
    assert commands("ec2:security-group", group) == {
        f"aws elbv2 delete-load-balancer --load-balancer-arn {balancer}",
        f"aws ec2 delete-security-group --group-id {other}",
    }


def test_a_gateway_is_held_by_public_addresses(left: LeftBehind) -> None:
    gateway = left.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    left.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=left.vpc)
    interface = left.interface("EFS mount target for fs-0a (fsmt-0b)")
    left.ec2.associate_address(AllocationId=left.things["address"], NetworkInterfaceId=interface)
    assert commands("ec2:internet-gateway", gateway) == {"aws efs delete-mount-target --mount-target-id fsmt-0b"}


def test_a_cluster_is_held_by_its_node_groups(left: LeftBehind) -> None:
    eks = boto3.client("eks", REGION)
    eks.create_cluster(name=FLEET, roleArn=ROLE, resourcesVpcConfig={"subnetIds": left.subnets})
    eks.create_nodegroup(clusterName=FLEET, nodegroupName="t4-spot", subnets=left.subnets, nodeRole=ROLE)
    assert commands("eks:cluster", FLEET) == {
        f"aws eks delete-nodegroup --cluster-name {FLEET} --nodegroup-name t4-spot"
    }


def test_repository_and_bucket_are_held_by_what_is_in_them(left: LeftBehind) -> None:
    s3 = boto3.client("s3", REGION)
    s3.create_bucket(Bucket="state", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="state", Key="a", Body=b"1")
    assert commands("s3:bucket", "state") == {"aws s3 rm s3://state --recursive, then its old versions"}
    account = Account({"ecr.ListImages": {"imageIds": [{"imageTag": "1"}, {"imageTag": "2"}]}})
    (images,) = holders.read(AwsReader(REGION, account.clients), "ecr:repository", "gpu")
    assert leftovers.said(images) == "image gpu (2 images)"
    assert leftovers.removal(images) == "aws ecr delete-repository --force --repository-name gpu"


def test_a_role_is_held_by_policies_and_profiles(left: LeftBehind) -> None:
    iam, role = boto3.client("iam"), left.things["role"]
    document = TRUST.replace("[]", '[{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}]')
    policy = iam.create_policy(PolicyName="extra", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role, PolicyArn=policy)
    iam.put_role_policy(RoleName=role, PolicyName="own", PolicyDocument=document)
    detach = f"aws iam detach-role-policy --role-name {role} --policy-arn {policy}"
    assert commands("iam:policy", policy) == {detach}
    assert commands("iam:role", role) == {
        detach,
        f"aws iam delete-role-policy --role-name {role} --policy-name own",
        f"aws iam remove-role-from-instance-profile --instance-profile-name eks-0a --role-name {role};"
        " aws iam delete-instance-profile --instance-profile-name eks-0a",
    }


@pytest.mark.parametrize(
    ("words", "kind", "own"),
    [
        ("VPC Endpoint Interface vpce-0a", "ec2:vpc-endpoint", "vpce-0a"),
        ("ELB a0b1", "elasticloadbalancing:classic", "a0b1"),
        ("Interface for NAT Gateway nat-0a", "ec2:natgateway", "nat-0a"),
        ("AWS Lambda VPC ENI-scan-it-0aaaaaaa-0bbb-0ccc-0ddd-0eeeeeeeeeee", "lambda:function", "scan-it"),
        ("somebody's own", "ec2:network-interface", "eni-1"),
    ],
)
def test_an_interface_is_what_it_goes_with(words: str, kind: str, own: str) -> None:
    thing = of_answer("ec2:network-interface", {"NetworkInterfaceId": "eni-1", "Description": words}, REGION)
    assert (thing.kind, thing.id) == (kind, own)
    assert own in leftovers.removal(thing)


def failure(message: str, urn: str = "") -> PulumiError:
    return PulumiError("failed", "look", Run("destroy", diagnostics=(Diagnostic("error", message, urn),)))


def test_holders_in_the_state_and_other_failures_are_not_explained(left: LeftBehind) -> None:
    aws = AwsReader(REGION)
    assert held.explained(failure("AccessDenied: not you"), (), aws) == ((), "")
    there = [Resource(f"urn::{thing.id}", _type(thing), thing.id) for thing in holders.read(aws, "ec2:vpc", left.vpc)]
    message = f"api error DependencyViolation: The vpc '{left.vpc}' has dependencies and cannot be deleted."
    lines, fix = held.explained(failure(message), there, aws)
    assert left.endpoint not in fix
    assert not [line for line in lines if left.subnets[0] in line]


def _type(thing: Thing) -> str:
    types = {"ec2:vpc-endpoint": "aws:ec2/vpcEndpoint:VpcEndpoint", "ec2:subnet": "aws:ec2/subnet:Subnet"}
    return types.get(thing.kind, "aws:ec2/other:Other")


# What may be another's.


def test_in_an_adopted_cluster_things_may_be_anothers(left: LeftBehind) -> None:
    scope = Scope(FLEET, FLEET, subnets=(left.subnets[0],), adopted="the cluster is adopted")
    found = made_by_others.read(AwsReader(REGION), scope).things
    items = leftovers.items(REGION, found, (), owners=("cluster", "nodes"))
    said = {item.what.rpartition(" ")[2].rpartition("/")[2]: item for item in items}
    for what, removal in (
        ("volume of a claim", "where nobody else has it"),
        ("interface of a database", "the service that made it"),
    ):
        item = said[left.things[what]]
        assert item.reason.startswith(PERHAPS), what
        assert item.removal.startswith(removal), what
    assert left.things["instance"] not in said
    assert not said[left.things["role"]].reason.startswith(PERHAPS), "the fleet's own tag says whose it is"


def test_tags_of_another_fleet_or_cluster_say_that_it_is_not_ours(left: LeftBehind) -> None:
    volume = left.things["volume of a claim"]
    left.ec2.create_tags(Resources=[volume], Tags=[{"Key": "paddock:fleet", "Value": "theirs"}])
    group = left.things["group of GuardDuty"]
    left.ec2.create_tags(Resources=[group], Tags=[{"Key": "kubernetes.io/cluster/theirs", "Value": "owned"}])
    found = {
        thing.id: thing for thing in made_by_others.read(AwsReader(REGION), Scope(FLEET, FLEET, (left.vpc,))).things
    }
    assert volume not in found
    assert found[group].shared == "it has the tag of cluster theirs"


def test_every_page_of_every_way_is_read() -> None:
    """A thousand pages of volumes, the last of which has the one that is left."""

    def volumes(asked: dict[str, object]) -> dict[str, object]:
        page = int(str(asked.get("NextToken") or 0))
        tags = [{"Key": f"kubernetes.io/cluster/{FLEET}", "Value": "shared" if page < 999 else "owned"}]
        volume = {"VolumeId": f"vol-{page}", "State": "available", "Size": 1, "Tags": tags}
        return {"Volumes": [volume], **({"NextToken": str(page + 1)} if page < 999 else {})}

    account = Account({**nothing_left(), "ec2.DescribeVolumes": volumes})
    found = made_by_others.read(AwsReader(REGION, account.clients), replace(Scope(FLEET), cluster=FLEET))
    assert [thing.id for thing in found.things] == ["vol-999"]


def test_an_interface_of_a_pod_goes_with_its_node() -> None:
    answer = {"NetworkInterfaceId": "eni-0a", "Description": "aws-k8s-branch-eni", "Status": "available"}
    thing = of_answer("ec2:network-interface", answer, REGION)
    assert (thing.made, thing.part_of) == ("EKS's VPC resource controller", "nodes")
