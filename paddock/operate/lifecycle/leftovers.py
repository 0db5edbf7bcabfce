"""Things of a fleet in AWS: what they cost, why they may be there, and what removes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock import catalog
from paddock.operate.lifecycle.report import Item
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.pulumi import Resource
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.cost.money import HOURS_A_MONTH

TAG = "paddock:fleet"
PERMISSION = "tag:GetResources"
FREE = "free"
IN_STATE = "in the stack's state"
"""Beginning of the reason of what a removal left on purpose."""
_BY_USE = "by use; no price is known here"
_LATE = "AWS's tag API still lists for a while what was deleted"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Facts of one kind of resource. `price` is a key of the catalogue; without one it is free, or by use."""

    removal: str
    """Command, with `{id}` and `{arn}`."""
    price: str = ""
    free: bool = True
    reason: str = ""


_EC2 = "aws ec2 delete-{verb}"
_KINDS: Mapping[str, _Kind] = {
    "ec2:elastic-ip": _Kind("aws ec2 release-address --allocation-id {id}", "vpc.public-ipv4"),
    "ec2:image": _Kind(
        "aws ec2 deregister-image --image-id {id} --delete-associated-snapshots",
        reason="Image Builder made it, and machine images outlive their stack; its snapshots cost",
    ),
    "ec2:instance": _Kind(
        "aws ec2 terminate-instances --instance-ids {id}",
        free=False,
        reason=f"it runs, or ended a short while ago: {_LATE}",
    ),
    "ec2:natgateway": _Kind("aws ec2 delete-nat-gateway --nat-gateway-id {id}", "vpc.nat-gateway"),
    "ec2:snapshot": _Kind(
        "aws ec2 delete-snapshot --snapshot-id {id}",
        "ebs.snapshot",
        reason="a machine image or a volume's copy is in it",
    ),
    "ec2:volume": _Kind(
        "aws ec2 delete-volume --volume-id {id}",
        "ebs.gp3.storage",
        reason="a persistent volume whose claim was kept, or whose driver was gone before it",
    ),
    "ec2:vpc": _Kind("aws ec2 delete-vpc --vpc-id {id}"),
    "ec2:vpc-endpoint": _Kind("aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id}", "vpc.interface-endpoint"),
    "ecr:repository": _Kind("aws ecr delete-repository --force --repository-name {id}", "ecr.storage"),
    "eks:cluster": _Kind("aws eks delete-cluster --name {id}", "eks.control-plane"),
    "eks:nodegroup": _Kind("aws eks delete-nodegroup (ARN {arn})", free=False, reason="its instances cost"),
    "kms:key": _Kind("aws kms schedule-key-deletion --key-id {id}", "kms.key"),
    "logs:log-group": _Kind("aws logs delete-log-group --log-group-name {id}", free=False),
    "secretsmanager:secret": _Kind("aws secretsmanager delete-secret --secret-id {id}", free=False),
}
_FREE = _Kind("the AWS console, or aws's delete command of it; ARN {arn}")
_STATE_KINDS = {
    "aws:cloudwatch/logGroup:LogGroup": "logs:log-group",
    "aws:ec2/eip:Eip": "ec2:elastic-ip",
    "aws:ec2/natGateway:NatGateway": "ec2:natgateway",
    "aws:ec2/vpc:Vpc": "ec2:vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "ec2:vpc-endpoint",
    "aws:ecr/repository:Repository": "ecr:repository",
    "aws:eks/cluster:Cluster": "eks:cluster",
    "aws:eks/nodeGroup:NodeGroup": "eks:nodegroup",
    "aws:kms/key:Key": "kms:key",
}


def cost_of(resource: Resource, region: str) -> tuple[float | None, str]:
    """Return what a resource of the stack costs a month in USD, and the price in words."""
    kind = _STATE_KINDS.get(resource.type)
    if kind == "ec2:vpc-endpoint" and resource.inputs.get("vpcEndpointType") in (None, "Gateway"):
        return 0.0, FREE
    return _cost(kind, region)


def tagged(aws: AwsReader, fleet: str, kept: Iterable[Resource]) -> tuple[Item, ...]:
    """Return what AWS has with the fleet's tag. `kept` is in the stack's state still. Raises Unavailable."""
    filters = [{"Key": TAG, "Values": [fleet]}]
    entries = aws.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters)
    ids = {resource.id: resource for resource in kept if resource.id}
    return tuple(
        _item(aws, str(entry["ResourceARN"]), ids) for entry in sorted(entries, key=lambda e: str(e["ResourceARN"]))
    )


def _item(aws: AwsReader, arn: str, kept: Mapping[str, Resource]) -> Item:
    kind, own = parse(arn)
    known = _KINDS.get(kind, _FREE)
    usd, cost = _cost(kind, aws.region)
    reason, removal = known.reason or f"unknown; {_LATE}", known.removal.format(id=own, arn=arn)
    if (resource := kept.get(own) or kept.get(arn)) is not None:
        reason = f"{IN_STATE}: {'it is protected' if resource.protect else 'what is protected needs it'}"
        usd, cost = cost_of(resource, aws.region)
        removal = "fleet.destroy --with-protected"
    elif (read := _READERS.get(kind)) is not None:
        reason, usd, cost, removal = read(aws, own, (reason, usd, cost, removal))
    return Item(what=arn, reason=reason, usd_per_month=usd, cost=cost, removal=removal)


def perhaps_of_another_stack(item: Item) -> Item:
    """Return what a stack with only some layers says of a thing that is not in its own state."""
    if item.reason.startswith(IN_STATE):
        return item
    reason = f"perhaps of another stack, as this one holds some layers only (paddock:layers); {item.reason}"
    removal = f"fleet.destroy of that stack; if no stack has it: {item.removal}"
    return item.model_copy(update={"reason": reason, "removal": removal})


def parse(arn: str) -> tuple[str, str]:
    """Return kind and id of an ARN: `ec2:volume` and `vol-1` of `arn:aws:ec2:us-west-2:1:volume/vol-1`."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        return "", arn
    service, rest = parts[2], parts[5]
    separator = ":" if service in ("logs", "secretsmanager", "rds", "sns", "sqs") else "/"
    type_, _, own = rest.partition(separator)
    return f"{service}:{type_}", own.removesuffix(":*") or type_


def _cost(kind: str | None, region: str) -> tuple[float | None, str]:
    known = _KINDS.get(kind or "", _FREE)
    if not known.price:
        return (0.0, FREE) if known.free else (None, _BY_USE)
    price = catalog.fixed_price(known.price, region)
    if price is None:
        return None, f"no price of {known.price} is known in {region}"
    text = f"{price.value:g} {price.unit} ({price.source}, {price.as_of})"
    if price.unit == "USD/hour":
        return round(price.value * HOURS_A_MONTH, 2), text
    return (price.value, text) if price.unit == "USD/month" else (None, text)


_Facts = tuple[str, float | None, str, str]


def _key(aws: AwsReader, own: str, facts: _Facts) -> _Facts:
    reason, usd, cost, removal = facts
    try:
        about = aws.read("kms", "describe_key", KeyId=own)["KeyMetadata"]
    except NotFound:
        return facts
    except Unavailable as error:
        return f"unknown: {error}", usd, cost, removal
    if about.get("KeyState") == "PendingDeletion":
        until = about.get("DeletionDate")
        return (
            f"pending deletion until {until:%Y-%m-%d}; aws kms cancel-key-deletion --key-id {own} brings it back",
            0.0,
            "free while its deletion is pending",
            "nothing: AWS deletes it then",
        )
    return reason, usd, cost, removal


def _volume(aws: AwsReader, own: str, facts: _Facts) -> _Facts:
    reason, _, cost, removal = facts
    try:
        (about,) = aws.read("ec2", "describe_volumes", VolumeIds=[own])["Volumes"]
    except (Unavailable, ValueError):
        return facts
    price = catalog.fixed_price("ebs.gp3.storage", aws.region)
    usd = round(about["Size"] * price.value, 2) if price and about.get("VolumeType") == "gp3" else None
    return f"{reason}; {about['Size']} GiB, {about.get('State')}", usd, cost, removal


_READERS: Mapping[str, Callable[[AwsReader, str, _Facts], _Facts]] = {"kms:key": _key, "ec2:volume": _volume}


def images_in(aws: AwsReader, repository: str) -> int | None:
    """Return the number of images of an ECR repository, None where there is no such one. Raises Unavailable."""
    try:
        entries: list[Any] = aws.pages("ecr", "list_images", "imageIds", repositoryName=repository)
    except NotFound:
        return None
    return len(entries)
