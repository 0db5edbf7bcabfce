"""Things of an account under names that a stack wants: log groups, repositories, GitHub's provider, endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound

AUDIENCE = "sts.amazonaws.com"
"""Audience of the tokens that workflows exchange with AWS."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing that is there under a name of the program's."""

    id: str
    """As `pulumi import` takes it."""
    tags: Callable[[], Mapping[str, str]] = field(compare=False, repr=False)
    """Reads its tags. Raises Unavailable, NotFound."""
    encrypted: bool | None = None
    """Whether it has a key of the account's own, None where that is not known."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint in a VPC."""

    id: str
    service: str
    """Such as `com.amazonaws.us-west-2.sts`."""
    private_dns: bool
    """Whether it answers under the service's own name, which one endpoint of a VPC may."""
    managed: bool
    """Whether a service of AWS made it."""
    tags: Mapping[str, str]


def read_log_group(aws: AwsReader, name: str) -> Thing | None:
    """Return a log group of CloudWatch, None where there is none. Raises Unavailable."""
    for group in aws.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name):
        if group["logGroupName"] == name:
            arn = group.get("logGroupArn") or str(group.get("arn", "")).removesuffix(":*")
            return Thing(name, partial(read_tags, aws, arn), bool(group.get("kmsKeyId")))
    return None


def read_repository(aws: AwsReader, name: str) -> Thing | None:
    """Return a repository of the account's registry, None where there is none. Raises Unavailable."""
    try:
        found = aws.pages("ecr", "describe_repositories", "repositories", repositoryNames=[name])
    except NotFound:
        return None
    for repository in found:
        own_key = repository.get("encryptionConfiguration", {}).get("encryptionType")
        tags = partial(read_tags, aws, str(repository.get("repositoryArn", "")))
        return Thing(name, tags, None if own_key is None else own_key != "AES256")
    return None


def read_alarms(aws: AwsReader, prefix: str) -> dict[str, Thing]:
    """Return the alarms of CloudWatch whose names begin so. Raises Unavailable."""
    found = aws.pages("cloudwatch", "describe_alarms", "MetricAlarms", AlarmNamePrefix=prefix)
    arns = {str(alarm["AlarmName"]): str(alarm.get("AlarmArn", "")) for alarm in found}
    return {name: Thing(name, partial(read_tags, aws, arn)) for name, arn in arns.items()}


def read_identity_provider(aws: AwsReader, issuer: str) -> Thing | None:
    """Return the account's provider for an issuer of tokens, None without one. Raises Unavailable."""
    wanted = issuer.removeprefix("https://").rstrip("/").lower()
    for item in aws.read("iam", "list_open_id_connect_providers").get("OpenIDConnectProviderList", ()):
        arn = str(item.get("Arn", ""))
        if arn.partition(":oidc-provider/")[2].rstrip("/").lower() == wanted:
            return Thing(arn, partial(read_tags, aws, arn))
    return None


def read_audiences(aws: AwsReader, provider: str) -> tuple[str, ...]:
    """Return the audiences whose tokens an identity provider takes. Raises Unavailable, NotFound."""
    answer = aws.read("iam", "get_open_id_connect_provider", OpenIDConnectProviderArn=provider)
    return tuple(answer.get("ClientIDList", ()))


def read_tags(aws: AwsReader, arn: str) -> dict[str, str]:
    """Return the tags of a thing; empty, too, where AWS does not know it. Raises Unavailable."""
    if ":oidc-provider/" in arn:
        answer = aws.read("iam", "list_open_id_connect_provider_tags", OpenIDConnectProviderArn=arn)
        return _tags(answer)
    found = aws.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", ResourceARNList=[arn])
    return {key: value for item in found for key, value in _tags(item).items()}


def read_vpcs(aws: AwsReader, fleet: str) -> tuple[str, ...]:
    """Return the ids of the VPCs with a fleet's tag. Raises Unavailable."""
    tagged = [{"Name": "tag:paddock:fleet", "Values": [fleet]}]
    return tuple(str(vpc["VpcId"]) for vpc in aws.pages("ec2", "describe_vpcs", "Vpcs", Filters=tagged))


def read_endpoints(aws: AwsReader, vpc: str) -> tuple[Endpoint, ...]:
    """Return the endpoints in a VPC. Raises Unavailable."""
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    return tuple(
        Endpoint(
            str(item.get("VpcEndpointId", "")),
            str(item.get("ServiceName", "")),
            bool(item.get("PrivateDnsEnabled")),
            bool(item.get("RequesterManaged")),
            _tags(item),
        )
        for item in aws.pages("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=inside)
        if item.get("State", "").lower() not in ("deleting", "deleted")
    )


def _tags(item: Mapping[str, Any]) -> dict[str, str]:
    return {str(tag["Key"]): str(tag["Value"]) for tag in item.get("Tags", ())}
