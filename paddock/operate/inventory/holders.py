"""Holders of a thing that AWS would not delete: interfaces, endpoints, node groups, images, policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paddock.operate.inventory.things import Thing, described, merged, of_answer
from paddock.operate.sources.aws import AwsReader


def read(aws: AwsReader, kind: str, id: str) -> tuple[Thing, ...]:
    """Return what holds a thing of this kind, `ec2:subnet` for example, each once. Raises Unavailable, NotFound."""
    reader = _READERS.get(kind)
    return merged(reader(aws, id)) if reader else ()


def _listed(aws: AwsReader, kind: str, filter: str, id: str) -> Iterator[Thing]:
    for answer in described(aws, kind, {filter: [id]}):
        yield of_answer(kind, answer, aws.region)


def _subnet(aws: AwsReader, id: str) -> Iterator[Thing]:
    interfaces = list(_listed(aws, "ec2:network-interface", "subnet-id", id))
    yield from interfaces
    yield from _listed(aws, "ec2:natgateway", "subnet-id", id)
    if any(thing.kind == "ec2:vpc-endpoint" for thing in interfaces):
        subnets = described(aws, "ec2:subnet", {"subnet-id": [id]})
        yield from _endpoints(aws, subnets[0]["VpcId"], id)


def _endpoints(aws: AwsReader, vpc: str, subnet: str) -> Iterator[Thing]:
    """Yield the endpoints in a subnet, with the groups of who made them, which would hold the VPC next."""
    for answer in described(aws, "ec2:vpc-endpoint", {"vpc-id": [vpc]}):
        endpoint = of_answer("ec2:vpc-endpoint", answer, aws.region)
        if subnet in answer.get("SubnetIds", ()):
            yield endpoint
            groups = [group["GroupId"] for group in answer.get("Groups") or ()] if endpoint.made else []
            for group in described(aws, "ec2:security-group", {"group-id": groups}) if groups else ():
                yield of_answer("ec2:security-group", group, aws.region)


def _vpc(aws: AwsReader, id: str) -> Iterator[Thing]:
    for kind in ("ec2:network-interface", "ec2:vpc-endpoint", "ec2:natgateway", "ec2:subnet", "ec2:security-group"):
        for answer in described(aws, kind, {"vpc-id": [id]}):
            if answer.get("GroupName") != "default":
                yield of_answer(kind, answer, aws.region)
    yield from _listed(aws, "ec2:internet-gateway", "attachment.vpc-id", id)
    for table in described(aws, "ec2:route-table", {"vpc-id": [id]}):
        if not any(association.get("Main") for association in table.get("Associations") or ()):
            yield of_answer("ec2:route-table", table, aws.region)


def _group(aws: AwsReader, id: str) -> Iterator[Thing]:
    yield from _listed(aws, "ec2:network-interface", "group-id", id)
    for name in ("ip-permission.group-id", "egress.ip-permission.group-id"):
        for thing in _listed(aws, "ec2:security-group", name, id):
            if thing.id != id:
                yield thing


def _internet_gateway(aws: AwsReader, id: str) -> Iterator[Thing]:
    """Yield what has a public address in the gateway's VPC: EC2 detaches it only when nothing has."""
    for gateway in described(aws, "ec2:internet-gateway", {"internet-gateway-id": [id]}):
        for vpc in (attachment["VpcId"] for attachment in gateway.get("Attachments") or ()):
            for answer in described(aws, "ec2:network-interface", {"vpc-id": [vpc]}):
                if (answer.get("Association") or {}).get("PublicIp"):
                    yield of_answer("ec2:network-interface", answer, aws.region)


def _cluster(aws: AwsReader, id: str) -> Iterator[Thing]:
    for operation, key, kind in (
        ("list_nodegroups", "nodegroups", "eks:nodegroup"),
        ("list_fargate_profiles", "fargateProfileNames", "eks:fargateprofile"),
    ):
        for name in aws.pages("eks", operation, key, clusterName=id):
            yield Thing(kind, f"{id}/{name}")


def _node_group(aws: AwsReader, id: str) -> Iterator[Thing]:
    """Yield what holds the security groups that EKS could not delete with the group."""
    cluster, _, name = id.partition("/")
    group = aws.read("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)["nodegroup"]
    for issue in (group.get("health") or {}).get("issues") or ():
        for named in issue.get("resourceIds") or ():
            if named.startswith("sg-"):
                yield from _group(aws, named)


def _repository(aws: AwsReader, id: str) -> Iterator[Thing]:
    images = len(aws.pages("ecr", "list_images", "imageIds", repositoryName=id))
    if images:
        yield Thing("ecr:image", id, about=(f"{images} images",))


def _bucket(aws: AwsReader, id: str) -> Iterator[Thing]:
    answer = aws.read("s3", "list_object_versions", Bucket=id, MaxKeys=1000)
    versions = len(answer.get("Versions") or ()) + len(answer.get("DeleteMarkers") or ())
    if versions:
        more = " or more" if answer.get("IsTruncated") else ""
        yield Thing("s3:object", id, about=(f"{versions}{more} versions of objects",))


def _role(aws: AwsReader, id: str) -> Iterator[Thing]:
    for profile in aws.pages("iam", "list_instance_profiles_for_role", "InstanceProfiles", RoleName=id):
        own = profile["InstanceProfileName"]
        yield Thing("iam:instance-profile", own, about=(f"with role {id}",), facts={"role": id})
    for attached in aws.pages("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=id):
        yield Thing("iam:attached-policy", attached["PolicyArn"], facts={"role": id})
    for name in aws.pages("iam", "list_role_policies", "PolicyNames", RoleName=id):
        yield Thing("iam:role-policy", str(name), facts={"role": id})


def _policy(aws: AwsReader, id: str) -> Iterator[Thing]:
    for role in aws.pages("iam", "list_entities_for_policy", "PolicyRoles", PolicyArn=id):
        yield Thing("iam:attached-policy", id, about=(f"of role {role['RoleName']}",), facts={"role": role["RoleName"]})


_READERS: dict[str, Callable[[AwsReader, str], Iterator[Thing]]] = {
    "ec2:subnet": _subnet,
    "ec2:vpc": _vpc,
    "ec2:security-group": _group,
    "ec2:internet-gateway": _internet_gateway,
    "eks:cluster": _cluster,
    "eks:nodegroup": _node_group,
    "ecr:repository": _repository,
    "s3:bucket": _bucket,
    "iam:role": _role,
    "iam:policy": _policy,
}
