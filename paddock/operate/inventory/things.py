"""Things in AWS: what they are called, who made them, and with what they go. The kinds are data, in things.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddock.operate.sources.aws import AwsReader

_FIELD = re.compile(r"{(\w+)}")
_BY_COLON = ("cloudwatch", "lambda", "logs", "rds", "secretsmanager", "sns", "sqs")
"""Services whose ARNs have a colon between type and name."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing in AWS. `kind` and `id` are those of its ARN, such as `ec2:volume` and `vol-1`."""

    kind: str
    id: str
    known: tuple[str, ...] = ()
    """Ways by which it was found."""
    made: str = ""
    """By whom, where that is known."""
    arn: str = ""
    about: tuple[str, ...] = ()
    part_of: str = ""
    """`cluster` or `nodes`, which take it with them when they go."""
    shared: str = ""
    """Why it may be another's."""
    holds: bool = False
    """True where it holds data of somebody else."""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    """AWS's answer."""


def parse(arn: str) -> tuple[str, str]:
    """Return kind and id of an ARN: `ec2:volume` and `vol-1` of `arn:aws:ec2:us-west-2:1:volume/vol-1`."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        return "", arn
    service, rest = parts[2], parts[5]
    type_, _, own = rest.partition(":" if service in _BY_COLON else "/")
    if service == "elasticloadbalancing" and type_ == "loadbalancer":
        type_ = own.partition("/")[0] if "/" in own else "classic"
    return f"{service}:{type_}", own.removesuffix(":*") or type_


def merged(things: Iterable[Thing]) -> tuple[Thing, ...]:
    """Return each thing once, with all that its finders say of it, by kind and id."""
    result: dict[tuple[str, str], Thing] = {}
    for new in things:
        old = result.get((new.kind, new.id), new)
        result[new.kind, new.id] = replace(
            old,
            known=tuple(dict.fromkeys((*old.known, *new.known))),
            about=tuple(dict.fromkeys((*old.about, *new.about))),
            made=old.made or new.made,
            arn=old.arn or new.arn,
            part_of=old.part_of or new.part_of,
            shared=old.shared and new.shared,
            holds=old.holds or new.holds,
            facts={**new.facts, **old.facts},
        )
    return tuple(result[key] for key in sorted(result))


def part_of(kind: str) -> str:
    """Return what takes things of a kind with it: `cluster`, or nothing."""
    return "cluster" if kind in _table()["of_clusters"] else ""


@cache
def kinds() -> Mapping[str, Mapping[str, Any]]:
    """Return how EC2 is asked for each kind that it lists."""
    listed: Mapping[str, Mapping[str, Any]] = _table()["ec2"]
    return listed


@cache
def _table() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return loaded


def described(aws: AwsReader, kind: str, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return what EC2 has of a kind with these filters, all pages, without what goes. Raises Unavailable."""
    row = kinds()[kind]
    asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
    parameters = {row.get("argument", "Filters"): asked, **row.get("with", {})}
    if row.get("pages", True):
        answers = aws.pages("ec2", row["ask"], row["list"], **parameters)
    else:
        answers = aws.read("ec2", row["ask"], **parameters).get(row["list"]) or []
    if within := row.get("within"):
        answers = [item for answer in answers for item in answer.get(within) or ()]
    return [answer for answer in answers if _state(answer) not in row.get("gone", ())]


def of_answer(kind: str, answer: Mapping[str, Any], region: str, **known: Any) -> Thing:
    """Return the thing that an answer of EC2 is about. An interface is the thing that it goes with."""
    row = kinds()[kind]
    form = row.get("about", "")
    about = form.format_map({**dict.fromkeys(_FIELD.findall(form), ""), **answer}).strip("; ")
    if claim := _claim(tags_of(answer)):
        about += f", {claim}"
    thing = Thing(kind, str(answer.get(row["id"]) or answer.get("PublicIp")), facts=answer, **known)
    thing = replace(thing, about=(about,) if about else ())
    for maker in _table()["makers"]:
        if maker["kind"] == kind and re.fullmatch(maker["pattern"], str(answer.get(maker["field"]))):
            made, part_of = maker.get("made", thing.made), thing.part_of or maker.get("part_of", "")
            thing = replace(thing, made=made, part_of=part_of)
            break
    return _owner(thing, region) if kind == "ec2:network-interface" else thing


def tags_of(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an answer, in any of the forms that services have."""
    return {tag["Key"]: tag["Value"] for tag in answer.get("Tags") or answer.get("TagSet") or ()}


def partition(region: str) -> str:
    """Return the partition of a region, as ARNs begin."""
    return "aws-us-gov" if region.startswith("us-gov-") else "aws-cn" if region.startswith("cn-") else "aws"


def _claim(tags: Mapping[str, str]) -> str:
    name = tags.get("kubernetes.io/created-for/pvc/name")
    return f"of claim {tags.get('kubernetes.io/created-for/pvc/namespace', '?')}/{name}" if name else ""


def _owner(interface: Thing, region: str) -> Thing:
    """Return the thing that an interface goes with, by its description or attachment; else the interface."""
    answer = interface.facts
    words = str(answer.get("Description") or "")
    own = (f"its interface {interface.id}" + (f": {words!r}" if words else ""),)
    for row in _table()["interfaces"]:
        match = re.fullmatch(row["pattern"], words)
        if match is None:
            continue
        found = replace(
            interface,
            made=row.get("made", interface.made),
            holds=row.get("holds", False),
            part_of=interface.part_of or row.get("part_of", ""),
        )
        if "kind" not in row:
            return found
        arn = ""
        if "arn" in row:
            rest = match.expand(row["arn"]).format(region=region, account=answer.get("OwnerId"))
            arn = f"arn:{partition(region)}:{rest}"
        kind, id_ = match.expand(row["kind"]), match.expand(row["id"])
        return replace(found, kind=kind, id=id_, arn=arn, about=own, facts={})
    if instance := (answer.get("Attachment") or {}).get("InstanceId"):
        return replace(interface, kind="ec2:instance", id=instance, about=own, part_of="nodes", facts={})
    requester = str(answer.get("RequesterId") or "") if answer.get("RequesterManaged") else ""
    # EC2 lets nobody else delete it: who made it must.
    return replace(interface, made=interface.made or requester, holds=interface.holds or bool(requester))


def _state(answer: Mapping[str, Any]) -> str:
    state = answer.get("State")
    return str(state.get("Name") if isinstance(state, Mapping) else state)
