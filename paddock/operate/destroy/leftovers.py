"""Things of a fleet in AWS: what they cost, why they may be there, and what removes them. The kinds are kinds.yaml."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddock import catalog
from paddock.operate.destroy.report import FREE, IN_STATE, NEEDED, PERHAPS, WITH_PROTECTED, Item
from paddock.operate.inventory.made_by_others import OUR_TAG
from paddock.operate.inventory.things import Thing
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound
from paddock.plan.cost.money import HOURS_A_MONTH, on_demand
from paddock.pulumi_cli.stack import Resource

_LATE = "AWS's tag API still lists for a while what was deleted"
_OTHERS_DATA = "the service that made it: it may hold data, and whose that is must say"


def cost_of(resource: Resource, region: str) -> tuple[float | None, str]:
    """Return what a resource of the stack costs a month in USD, and the price in words."""
    kind = _table()["states"].get(resource.type, "")
    facts = {"SubnetIds": resource.inputs.get("subnetIds")} if resource.inputs.get("subnetIds") else {}
    if kind == "ec2:vpc-endpoint":
        facts["VpcEndpointType"] = resource.inputs.get("vpcEndpointType") or "Gateway"
    return _cost(Thing(kind, resource.id, facts=facts), region)


def items(
    region: str,
    things: Iterable[Thing],
    kept: Collection[Resource],
    *,
    planned: bool = False,
    owners: Collection[str] = (),
    shared: str = "",
) -> tuple[Item, ...]:
    """Return what is left of the fleet. `kept` is in the stack's state; where the removal is only `planned`, it goes.

    `owners` are `cluster` and `nodes` where these are there still, and take with them what they made. `shared` says why
    what carries the fleet's tag may be another's.
    """
    named = {key_of(resource): resource for resource in kept if resource.id}
    others = {resource.id: resource for resource in kept if resource.id and not _kind(resource)}
    result = []
    for thing in things:
        resource = named.get(_key(thing)) or others.get(thing.id) or others.get(thing.arn) or others.get(_child(thing))
        if resource is not None:
            if not planned:
                result.append(_of_state(thing, resource, region))
        elif thing.part_of not in owners:
            result.append(_item(region, thing, thing.shared or (shared if OUR_TAG in thing.known else "")))
    return tuple(result)


def removal(thing: Thing) -> str:
    """Return the command that removes a thing."""
    if thing.holds:
        return _OTHERS_DATA
    form = str(_row(thing).get("removal") or "the AWS console, or aws's delete command of it; ARN {arn}")
    first, _, rest = thing.id.partition("/")
    return form.format(
        id=thing.id, arn=thing.arn or thing.id, first=first, second=rest.partition("/")[0], role=thing.facts.get("role")
    )


def said(thing: Thing) -> str:
    """Return what a thing is, in a line: kind and ID, what AWS says of it, and who made it."""
    about = f" ({'; '.join(thing.about)})" if thing.about else ""
    return f"{thing.kind.partition(':')[2]} {thing.id}{about}{f', made by {thing.made}' if thing.made else ''}"


def key_of(resource: Resource) -> tuple[str, str]:
    """Return kind and ID of a resource of the state, as a thing has them; without a kind where none is known."""
    kind = _kind(resource)
    return kind, resource.id.replace(":", "/") if kind == "eks:nodegroup" else resource.id


def images_in(aws: AwsReader, repository: str) -> int | None:
    """Return the number of images of an ECR repository, None where it does not exist. Raises Unavailable."""
    try:
        entries: list[Any] = aws.pages("ecr", "list_images", "imageIds", repositoryName=repository)
    except NotFound:
        return None
    return len(entries)


@cache
def _table() -> Mapping[str, Any]:
    text = Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.safe_load(text)
    return loaded


def _row(thing: Thing) -> Mapping[str, Any]:
    row: Mapping[str, Any] = _table()["kinds"].get(thing.kind, {})
    return row


def _kind(resource: Resource) -> str:
    return str(_table()["states"].get(resource.type, ""))


def _key(thing: Thing) -> tuple[str, str]:
    id_ = "/".join(thing.id.split("/")[:2]) if thing.kind == "eks:nodegroup" else thing.id
    return thing.kind, id_


def _child(thing: Thing) -> str:
    """Return what Pulumi calls a part of a cluster: `NAME:PART`."""
    return ":".join(thing.id.split("/")[:2]) if thing.kind.startswith("eks:") else ""


def _of_state(thing: Thing, resource: Resource, region: str) -> Item:
    usd, cost = cost_of(resource, region)
    reason = f"{IN_STATE}: {'it is protected' if resource.protect else NEEDED}"
    return Item(what=_what(thing), reason=reason, usd_per_month=usd, cost=cost, removal=WITH_PROTECTED)


def _item(region: str, thing: Thing, shared: str) -> Item:
    usd, cost = _cost(thing, region)
    command = removal(thing)
    words = [f"known by {', '.join(thing.known)}", *([f"made by {thing.made}"] if thing.made else []), *thing.about]
    words += [str(reason)] if (reason := _row(thing).get("reason")) else []
    if thing.known == (OUR_TAG,) and not thing.facts:
        words.append(_LATE)
    if thing.kind == "ec2:snapshot" and (image := thing.facts.get("ImageId")):
        command = removal(Thing("ec2:image", image))
    if thing.facts.get("KeyState") == "PendingDeletion":
        words.append(f"pending deletion until {thing.facts.get('DeletionDate'):%Y-%m-%d}")
        words.append(f"aws kms cancel-key-deletion --key-id {thing.id} brings it back")
        usd, cost, command = 0.0, "free while its deletion is pending", "nothing: AWS deletes it then"
    if shared:
        words.insert(0, f"{PERHAPS}: {shared}")
        command = command if thing.holds else f"where nobody else has it: {command}"
    return Item(what=_what(thing), reason="; ".join(words), usd_per_month=usd, cost=cost, removal=command)


def _what(thing: Thing) -> str:
    return thing.arn or f"{thing.kind} {thing.id}"


def _cost(thing: Thing, region: str) -> tuple[float | None, str]:
    row = _row(thing)
    if thing.kind == "ec2:instance" and (known := catalog.instances().get(str(thing.facts.get("InstanceType")))):
        money = on_demand(known, region)
        if money.value is not None:
            text = f"at most {money.value:g} USD/hour ({', '.join(money.sources)}, {money.as_of})"
            return round(money.value * HOURS_A_MONTH, 2), text
    key = row.get("price")
    if key is None:
        return (None, str(row["use"])) if "use" in row else (0.0, FREE)
    if thing.facts.get("VpcEndpointType") == "Gateway":
        return 0.0, FREE
    price = catalog.fixed_price(str(key), region)
    if price is None:
        return None, f"no price of {key} is known in {region}"
    text = f"{price.value:g} {price.unit} ({price.source}, {price.as_of})"
    if thing.kind == "ec2:volume" and thing.facts.get("VolumeType", "gp3") != "gp3":
        return None, f"no price of {thing.facts['VolumeType']} is known in {region}"
    count = _count(thing, row)
    if count is None:
        return None, text
    return round(price.value * count * (HOURS_A_MONTH if price.unit == "USD/hour" else 1), 2), text


def _count(thing: Thing, row: Mapping[str, Any]) -> float | None:
    """Return how often the price is paid; None where that follows from its use or size, and is not known."""
    field = row.get("count")
    if field is None:
        return None if "GB" in str(row["price"]) or row["price"] == "ecr.storage" else 1
    value = thing.facts.get(field)
    return float(len(value)) if isinstance(value, list | tuple) else None if value is None else float(value)
