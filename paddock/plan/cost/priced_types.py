"""Resource types by cost: priced in the estimate, paid by use, or free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paddock.plan.engine.graph import Graph

Kind = Literal["priced", "free", "unpriced"]

PRICED: Mapping[str, str] = {
    "aws:eks/cluster:Cluster": "the control plane, by the hour",
    "aws:eks/nodeGroup:NodeGroup": "its nodes and their volumes, by the hour",
    "aws:ec2/natGateway:NatGateway": "by the hour; what it carries is not estimated",
    "aws:ec2/eip:Eip": "a public IPv4 address, by the hour",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "interface endpoints, by the hour and zone",
    "aws:kms/key:Key": "by the month",
}
"""Types with a price in the estimate."""

UNPRICED: Mapping[str, str] = {
    "aws:cloudwatch/logGroup:LogGroup": "by the GB of logs taken in and kept",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "by the alarm and metric, each month",
    "aws:cloudwatch/dashboard:Dashboard": "by the dashboard and month",
    "aws:ec2/flowLog:FlowLog": "by the GB of flow logs taken in",
    "aws:ecr/repository:Repository": "by the GB of images kept",
    "aws:imagebuilder/imagePipeline:ImagePipeline": "GPU instances while an image is built, and its snapshots",
    "aws:secretsmanager/secret:Secret": "by the secret and month",
    "aws:s3/bucket:Bucket": "by the GB kept",
    "aws:sqs/queue:Queue": "by the request",
    "aws:sns/topic:Topic": "by the message",
}
"""Types whose cost follows use, which is not stated."""

FREE: Mapping[str, str] = {
    "aws:cloudwatch/eventRule:EventRule": "rules on AWS's own events",
    "aws:cloudwatch/eventTarget:EventTarget": "rules on AWS's own events",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "VPC",
    "aws:ec2/internetGateway:InternetGateway": "VPC",
    "aws:ec2/launchTemplate:LaunchTemplate": "what it launches is counted with the node group",
    "aws:ec2/route:Route": "VPC",
    "aws:ec2/routeTable:RouteTable": "VPC",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "VPC",
    "aws:ec2/securityGroup:SecurityGroup": "VPC",
    "aws:ec2/subnet:Subnet": "VPC",
    "aws:ec2/tag:Tag": "tags",
    "aws:ec2/vpc:Vpc": "VPC",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "ECR policies",
    "aws:ecr/registryScanningConfiguration:RegistryScanningConfiguration": "basic scanning",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "ECR policies",
    "aws:eks/accessEntry:AccessEntry": "EKS access",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "EKS access",
    "aws:eks/addon:Addon": "what it runs is on the nodes",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "EKS access",
    "aws:imagebuilder/component:Component": "Image Builder itself",
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": "Image Builder itself",
    "aws:imagebuilder/imageRecipe:ImageRecipe": "Image Builder itself",
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": "Image Builder itself",
    "aws:kms/alias:Alias": "names of keys",
}
"""Types that AWS does not charge for."""

FREE_PREFIXES: Mapping[str, str] = {
    "aws:iam/": "IAM",
    "kubernetes:": "objects in the cluster; the nodes they run on are counted",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Resources of one type. `names` are those that the estimate leaves out."""

    type: str
    count: int
    kind: Kind
    why: str
    names: tuple[str, ...] = ()


def classify(type_: str) -> tuple[Kind, str]:
    """Return whether a type costs money of its own, and why. An unlisted type is unpriced, and says so."""
    if type_ in PRICED:
        return "priced", PRICED[type_]
    if type_ in UNPRICED:
        return "unpriced", UNPRICED[type_]
    if type_ in FREE:
        return "free", FREE[type_]
    for prefix, why in FREE_PREFIXES.items():
        if type_.startswith(prefix):
            return "free", why
    return "unpriced", "nobody has looked at what it costs"


def census(graph: Graph, left_out: Mapping[str, str]) -> tuple[Entry, ...]:
    """Every type that a provider makes, by name. `left_out`: URN -> why a resource of a priced type has no price."""
    names: dict[tuple[str, Kind, str], list[str]] = {}
    for resource in graph.resources.values():
        if not resource.custom or resource.type.startswith("pulumi:"):  # providers and stack references
            continue
        kind, why = classify(resource.type)
        if resource.urn in left_out:
            kind, why = "unpriced", left_out[resource.urn]
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs.get("vpcEndpointType") == "Gateway":
            kind, why = "free", "gateway endpoints"
        names.setdefault((resource.type, kind, why), []).append(resource.name)
    return tuple(
        Entry(type_, len(of_type), kind, why, tuple(of_type) if kind == "unpriced" else ())
        for (type_, kind, why), of_type in sorted(names.items())
    )
