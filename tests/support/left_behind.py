"""Accounts in which something of a fleet is left, for `Account` and for moto."""

from __future__ import annotations

from typing import Any

import boto3

from paddock.operate.inventory.things import kinds
from tests.support.aws_account import Answer

_ASKED: dict[str, dict[str, Any]] = {
    "autoscaling.DescribeAutoScalingGroups": {"AutoScalingGroups": []},
    "elb.DescribeLoadBalancers": {},
    "elbv2.DescribeLoadBalancers": {},
    "elbv2.DescribeTargetGroups": {},
    "iam.ListOpenIDConnectProviders": {},
    "iam.ListRoles": {"Roles": []},
    "imagebuilder.ListImages": {},
    "logs.DescribeLogGroups": {},
    "resourcegroupstaggingapi.GetResources": {},
    "secretsmanager.ListSecrets": {},
}


def nothing_left() -> dict[str, Answer]:
    """Return the answers of an account that has nothing of the fleet. What the tag API lists is there, if asked for."""
    answers: dict[str, Answer] = {**_ASKED}
    for row in kinds().values():
        operation = "".join(word.capitalize() for word in row["ask"].split("_"))
        answers[f"ec2.{operation}"] = lambda asked, row=row: _there(asked, row)  # type: ignore[misc]
    return answers


def _there(asked: dict[str, Any], row: Any) -> dict[str, Any]:
    filters = asked.get(row.get("argument", "Filters")) or []
    ids = [value for one in filters if one["Name"] == row.get("filter") for value in one["Values"]]
    found = [{row["id"]: value} for value in ids]
    return {row["list"]: [{row["within"]: found}] if "within" in row else found}


GUARD = "GuardDutyManagedSecurityGroup"
TRUST = '{"Version": "2012-10-17", "Statement": []}'


class LeftBehind:
    """A fleet's account in moto, whose cluster is gone: what EKS, its controllers and other services left.

    `things` are IDs by what they are; `others` are those of other clusters and fleets.
    """

    def __init__(self, fleet: str, region: str) -> None:
        self.fleet, self.region = fleet, region
        self.things: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self.ec2 = boto3.client("ec2", region)
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [self._subnet(f"10.0.{number}.0/24", zone) for number, zone in enumerate("ab")]
        owned = {f"kubernetes.io/cluster/{fleet}": "owned"}
        self._volumes(owned)
        self._network(owned)
        self._balancers(owned)
        self._others_of_ec2(owned)
        self._named()

    @property
    def endpoint(self) -> str:
        return self.things["endpoint of GuardDuty"]

    def _subnet(self, cidr: str, zone: str) -> str:
        made = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=cidr, AvailabilityZone=f"{self.region}{zone}")
        return str(made["Subnet"]["SubnetId"])

    def _volumes(self, owned: dict[str, str]) -> None:
        claim = {
            "kubernetes.io/created-for/pvc/name": "cache",
            "kubernetes.io/created-for/pvc/namespace": "arc-runners",
        }
        kinds = {"volume of a claim": {**owned, **claim}, "volume of the old driver": {"KubernetesCluster": self.fleet}}
        for what, tags in kinds.items():
            self.things[what] = self._volume(tags)
        self.others["volume"] = self._volume({"kubernetes.io/cluster/another": "owned"})
        snapshot = self.ec2.create_snapshot(
            VolumeId=self.things["volume of a claim"], TagSpecifications=_tagged("snapshot", owned)
        )
        self.things["snapshot of a claim"] = snapshot["SnapshotId"]

    def _volume(self, tags: dict[str, str]) -> str:
        made = self.ec2.create_volume(
            AvailabilityZone=f"{self.region}a", Size=50, VolumeType="gp3", TagSpecifications=_tagged("volume", tags)
        )
        return str(made["VolumeId"])

    def _network(self, owned: dict[str, str]) -> None:
        for what, name in (
            ("group of GuardDuty", f"{GUARD}-{self.vpc}"),
            ("group of EKS", f"eks-cluster-sg-{self.fleet}-1"),
        ):
            made = self.ec2.create_security_group(GroupName=name, Description="made up", VpcId=self.vpc)
            self.things[what] = made["GroupId"]
        endpoint = self.ec2.create_vpc_endpoint(
            VpcId=self.vpc,
            ServiceName=f"com.amazonaws.{self.region}.guardduty-data",
            VpcEndpointType="Interface",
            SubnetIds=self.subnets,
            SecurityGroupIds=[self.things["group of GuardDuty"]],
        )
        self.things["endpoint of GuardDuty"] = endpoint["VpcEndpoint"]["VpcEndpointId"]
        self.interface(f"VPC Endpoint Interface {self.endpoint}")
        self.things["interface of the CNI"] = self.interface("aws-K8S-i-0123456789abcdef0")
        self.things["interface of a database"] = self.interface("RDSNetworkInterface")
        address = self.ec2.allocate_address(Domain="vpc", TagSpecifications=_tagged("elastic-ip", owned))
        self.things["address"] = address["AllocationId"]

    def interface(self, description: str) -> str:
        made = self.ec2.create_network_interface(SubnetId=self.subnets[0], Description=description)
        return str(made["NetworkInterface"]["NetworkInterfaceId"])

    def _balancers(self, owned: dict[str, str]) -> None:
        new = boto3.client("elbv2", self.region)
        tags = [{"Key": "elbv2.k8s.aws/cluster", "Value": self.fleet}]
        made = new.create_load_balancer(Name="k8s-arc", Type="network", Subnets=self.subnets, Tags=tags)
        self.things["network load balancer"] = made["LoadBalancers"][0]["LoadBalancerArn"]
        group = new.create_target_group(Name="k8s-arc", Protocol="TCP", Port=80, VpcId=self.vpc, Tags=tags)
        self.things["target group"] = group["TargetGroups"][0]["TargetGroupArn"]
        boto3.client("elb", self.region).create_load_balancer(
            LoadBalancerName="a0123456789abcdef",
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
            Subnets=self.subnets,
            Tags=[{"Key": key, "Value": value} for key, value in owned.items()],
        )
        self.things["classic load balancer"] = "a0123456789abcdef"

    def _others_of_ec2(self, owned: dict[str, str]) -> None:
        eks = {"eks:cluster-name": self.fleet}
        template = self.ec2.create_launch_template(
            LaunchTemplateName="eks-1",
            LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge"},
            TagSpecifications=_tagged("launch-template", eks),
        )
        self.things["launch template"] = template["LaunchTemplate"]["LaunchTemplateId"]
        run = self.ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="g4dn.xlarge",
            MinCount=1,
            MaxCount=1,
            SubnetId=self.subnets[0],
            TagSpecifications=_tagged("instance", {**owned, **eks}),
        )
        instance = run["Instances"][0]["InstanceId"]
        self.things["instance"] = instance
        name = f"{self.fleet}-gpu-1.36-2026-11-20T01-02-03Z"
        self.things["machine image"] = self.ec2.create_image(InstanceId=instance, Name=name)["ImageId"]
        self.others["machine image"] = self.ec2.create_image(InstanceId=instance, Name="somebody-gpu-1.36-x")["ImageId"]

    def _named(self) -> None:
        logs = boto3.client("logs", self.region)
        for what, name in (
            ("log group of EKS", f"/aws/eks/{self.fleet}/cluster"),
            ("log group of Container Insights", f"/aws/containerinsights/{self.fleet}/performance"),
            ("log group of an image", "/aws/imagebuilder/gpu-ami-recipe-0123abc"),
        ):
            logs.create_log_group(logGroupName=name)
            self.things[what] = name
        self.others["log group"] = f"/aws/eks/{self.fleet}-2/cluster"
        logs.create_log_group(logGroupName=self.others["log group"])
        iam, tags = boto3.client("iam"), [{"Key": "paddock:fleet", "Value": self.fleet}]
        for name, marks in (("cluster-node-0123abc", tags), ("cluster-node-4567def", [])):
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST, Tags=marks)
        self.things["role"], self.others["role"] = "cluster-node-0123abc", "cluster-node-4567def"
        iam.create_instance_profile(InstanceProfileName="eks-0a")
        iam.add_role_to_instance_profile(InstanceProfileName="eks-0a", RoleName="cluster-node-0123abc")
        self.things["instance profile"] = "eks-0a"
        provider = iam.create_open_id_connect_provider(
            Url=f"https://oidc.eks.{self.region}.amazonaws.com/id/0123456789ABCDEF",
            ThumbprintList=["0" * 40],
            Tags=[{"Key": "alpha.eksctl.io/cluster-name", "Value": self.fleet}],
        )
        self.things["identity provider"] = provider["OpenIDConnectProviderArn"]
        key = boto3.client("kms", self.region).create_key(Tags=[{"TagKey": "paddock:fleet", "TagValue": self.fleet}])
        self.things["key"] = key["KeyMetadata"]["KeyId"]


def _tagged(kind: str, tags: dict[str, str]) -> Any:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]
