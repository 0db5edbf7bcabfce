"""Things that AWS, controllers and drivers made for a fleet, known by tag, cluster, VPC, name and owner.

The ways are data, in made_by_others.yaml. Nothing here judges whether a thing should be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from paddock.operate.inventory.things import (
    Thing,
    described,
    kinds,
    merged,
    of_answer,
    parse,
    part_of,
    partition,
    tags_of,
)
from paddock.operate.sources.aws import AwsReader, NoCredentials
from paddock.operate.sources.unavailable import NotFound, Unavailable

FLEET_TAG = "paddock:fleet"
OUR_TAG = f"tag {FLEET_TAG}"
"""The one way that says that the fleet's own program made it."""
_CLUSTER_TAG = "kubernetes.io/cluster/"
_CLUSTER_NAMES = ("KubernetesCluster", "aws:eks:cluster-name", "eks:cluster-name", "elbv2.k8s.aws/cluster")
_AT_ONCE = 8
_CHUNK = 20
"""Resources of which Elastic Load Balancing tells the tags at once."""
_MOST_VALUES = 200
"""Values of one filter of EC2 (docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html, 2026-11-28)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Names by which a fleet's things are known. Empty ones are not asked for."""

    fleet: str
    cluster: str = ""
    vpcs: tuple[str, ...] = ()
    """The fleet's own, as far as its state has them."""
    own_network: bool = False
    """Whether the fleet makes a VPC, which is looked for by its tag, too."""
    subnets: tuple[str, ...] = ()
    """Of an adopted VPC."""
    issuer: str = ""
    """Of the cluster's tokens, where it is known."""
    images: bool = True
    """Whether the stack makes machine images."""
    adopted: str = ""
    """Why what the cluster made may be another's."""

    def fill(self, template: str) -> tuple[str, ...]:
        """Return the template with its name filled in, once a value."""
        values = {
            "{fleet}": (self.fleet,),
            "{cluster}": (self.cluster,) if self.cluster else (),
            "{vpc}": self.vpcs,
            "{subnet}": self.subnets,
        }
        for name, names in values.items():
            if name in template:
                return tuple(template.replace(name, value) for value in names)
        return (template,)


@dataclass(frozen=True, slots=True)
class Found:
    """Things, each once, and the questions that AWS did not answer."""

    things: tuple[Thing, ...]
    unanswered: tuple[Unavailable, ...]
    """One for each permission that is missing, or reason; without credentials one alone."""


_Question = Callable[[], Iterable[Thing]]


@cache
def table() -> Mapping[str, Any]:
    """Return the ways, as made_by_others.yaml has them."""
    loaded: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return loaded


def read(aws: AwsReader, scope: Scope) -> Found:
    """Return what there is of the fleet."""
    lost = []
    if scope.own_network:
        try:
            there = described(aws, "ec2:vpc", {f"tag:{FLEET_TAG}": [scope.fleet]})
            scope = replace(scope, vpcs=tuple(sorted({*scope.vpcs, *(vpc["VpcId"] for vpc in there)})))
        except Unavailable as error:
            lost.append(error)
    questions: list[_Question] = [partial(_way, aws, scope, row) for row in table()["ways"]]
    questions += [partial(_log_groups, aws, scope, row) for row in table()["log_groups"]]
    questions += [partial(_balancers, aws, scope, row) for row in table()["balancers"]]
    named = (_scaling_groups, _identity_providers, _roles, _secrets)
    questions += [partial(reader, aws, scope) for reader in (*named, *((_images,) if scope.images else ()))]
    # Last, since a tag says the least of who made a thing.
    questions += [partial(_tagged, aws, scope, row) for row in table()["tags"]]
    questions += [partial(_tagged, aws, scope, table()["tags"][0], region) for region in _global_region(aws.region)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(_answered, questions))
    refused = [*lost, *(answer for answer in answers if isinstance(answer, Unavailable))]
    found = merged(thing for answer in answers if isinstance(answer, tuple) for thing in answer)
    unsigned = [error for error in refused if isinstance(error, NoCredentials)]
    if unsigned:
        return Found((), (unsigned[0],))
    return Found(_still_there(aws, found), tuple({error.permission or str(error): error for error in refused}.values()))


def _answered(question: _Question) -> tuple[Thing, ...] | Unavailable:
    try:
        return tuple(question())
    except Unavailable as error:
        return error


def _of_what_goes(answers: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the answers about a thing of a list; none where it went after it was listed. Raises Unavailable."""
    try:
        return list(answers())
    except NotFound:
        return []


# The ways.


def _tagged(aws: AwsReader, scope: Scope, row: Mapping[str, str], region: str = "") -> Iterator[Thing]:
    for key in scope.fill(row["key"]):
        wanted = {"Key": key, **({"Values": list(scope.fill(row["value"]))} if "value" in row else {})}
        if wanted.get("Values") == []:
            continue
        entries = aws.pages(
            "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", region=region, TagFilters=[wanted]
        )
        for entry in entries:
            kind, own = parse(str(entry["ResourceARN"]))
            thing = Thing(
                kind, own, (row["by"],), row.get("made", ""), str(entry["ResourceARN"]), part_of=part_of(kind)
            )
            yield from _of_fleet(thing, scope, tags_of(entry))


def _global_region(region: str) -> tuple[str, ...]:
    where = table()["global_regions"].get(partition(region), "")
    return (where,) if where and where != region else ()


def _way(aws: AwsReader, scope: Scope, row: Mapping[str, Any]) -> Iterator[Thing]:
    filters = {name: scope.fill(template) for name, template in row["filters"].items()}
    if not all(filters.values()):
        return
    for answer in described(aws, row["kind"], filters):
        if any(answer.get(name) != value for name, value in row.get("only", {}).items()):
            continue
        if row["kind"] == "ec2:security-group" and answer.get("GroupName") == "default":
            continue  # it goes with its VPC
        known = {"known": (row["by"],), "made": row.get("made", ""), "part_of": row.get("part_of", "")}
        thing = of_answer(row["kind"], answer, aws.region, **known)
        yield from _of_fleet(thing, scope, tags_of(answer))
        if row["kind"] == "ec2:image":
            yield from _snapshots_of(thing)


def _snapshots_of(image: Thing) -> Iterator[Thing]:
    for mapping in image.facts.get("BlockDeviceMappings") or ():
        if snapshot := (mapping.get("Ebs") or {}).get("SnapshotId"):
            about = (f"of image {image.id}, with which it goes",)
            size = {"VolumeSize": mapping["Ebs"].get("VolumeSize"), "ImageId": image.id}
            yield Thing("ec2:snapshot", snapshot, ("its image",), image.made, about=about, facts=size)


def _of_fleet(thing: Thing, scope: Scope, tags: Mapping[str, str]) -> Iterator[Thing]:
    """Yield the thing unless its tags name another fleet or cluster; in our VPC it is then perhaps another's."""
    (by,) = thing.known
    if fleet := tags.get(FLEET_TAG):
        if fleet == scope.fleet:
            yield replace(thing, known=tuple(dict.fromkeys((by, OUR_TAG))))
        return
    if tags.get(_CLUSTER_TAG + scope.cluster) == "shared":
        return  # a subnet or group that clusters use and do not make
    clusters = {key.removeprefix(_CLUSTER_TAG) for key in tags if key.startswith(_CLUSTER_TAG)}
    clusters |= {tags[key] for key in _CLUSTER_NAMES if key in tags}
    if clusters and scope.cluster not in clusters:
        if by == "VPC":
            yield replace(thing, shared=f"it has the tag of cluster {', '.join(sorted(clusters))}")
        return
    shared = "the VPC is adopted" if by == "subnet" else scope.adopted if "cluster" in by else ""
    yield replace(thing, shared=thing.shared or shared)


def _log_groups(aws: AwsReader, scope: Scope, row: Mapping[str, Any]) -> Iterator[Thing]:
    for prefix in scope.fill(row["prefix"]):
        for group in aws.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix):
            size = group.get("storedBytes")
            about = (f"{(size or 0) / 1e9:.2f} GB stored", f"kept {_kept(group)}")
            arn = str(group.get("arn", "")).removesuffix(":*")
            thing = Thing("logs:log-group", group["logGroupName"], (row["by"],), row.get("made", ""), arn, about)
            if not row.get("shared"):
                yield replace(thing, shared=scope.adopted if "cluster" in row["by"] else "")
                continue
            try:
                tags = aws.read("logs", "list_tags_for_resource", resourceArn=arn).get("tags") or {}
            except NotFound:
                continue  # it went after it was listed
            fleet = tags.get(FLEET_TAG)
            if fleet in (None, scope.fleet):
                yield replace(thing, shared="" if fleet else "any fleet of the account has such names")


def _kept(group: Mapping[str, Any]) -> str:
    return f"{group['retentionInDays']} days" if group.get("retentionInDays") else "for ever"


def _balancers(aws: AwsReader, scope: Scope, row: Mapping[str, str]) -> Iterator[Thing]:
    if not (scope.cluster or scope.vpcs):
        return
    answers = {answer[row["name"]]: answer for answer in aws.pages(row["service"], row["ask"], row["list"])}
    names = list(answers)
    tags: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), _CHUNK):
        asked: dict[str, Any] = {row["names"]: names[start : start + _CHUNK]}
        told = aws.read(row["service"], "describe_tags", **asked)["TagDescriptions"]
        tags |= {one[row["told"]]: tags_of(one) for one in told}
    for name, answer in answers.items():
        arn = name if name.startswith("arn:") else ""
        kind, own = parse(arn) if arn else ("elasticloadbalancing:classic", name)
        thing = Thing(kind, own, arn=arn, about=(str(answer.get(row["about"])),), facts=answer)
        controller = tags.get(name, {}).get("elbv2.k8s.aws/cluster")
        made = "the AWS Load Balancer Controller" if controller else ""
        if scope.cluster and (controller == scope.cluster or _CLUSTER_TAG + scope.cluster in tags.get(name, {})):
            thing = replace(thing, known=("cluster tag",), made=made or "Kubernetes' service controller")
        elif answer.get(row["vpc"]) in scope.vpcs:
            thing = replace(thing, known=("VPC",), made=made)
        else:
            continue
        yield from _of_fleet(thing, scope, tags.get(name, {}))


def _scaling_groups(aws: AwsReader, scope: Scope) -> Iterator[Thing]:
    if not scope.cluster:
        return
    filters = [{"Name": "tag:eks:cluster-name", "Values": [scope.cluster]}]
    for group in aws.pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters):
        own, about = group["AutoScalingGroupName"], (f"{group.get('DesiredCapacity')} instances",)
        thing = Thing("autoscaling:autoScalingGroup", own, ("cluster tag",), "EKS", about=about, part_of="nodes")
        yield from _of_fleet(replace(thing, arn=group.get("AutoScalingGroupARN", "")), scope, tags_of(group))


def _identity_providers(aws: AwsReader, scope: Scope) -> Iterator[Thing]:
    """Yield providers for the cluster's own tokens: eksctl and others make one, and nothing of EKS removes it."""
    if not scope.cluster:
        return
    for provider in aws.read("iam", "list_open_id_connect_providers").get("OpenIDConnectProviderList") or ():
        arn = provider["Arn"]
        if "/oidc.eks." not in arn:
            continue
        issuer = bool(scope.issuer) and arn.endswith(scope.issuer.removeprefix("https:/"))
        tags = partial(aws.pages, "iam", "list_open_id_connect_provider_tags", "Tags", OpenIDConnectProviderArn=arn)
        pages = _of_what_goes(tags)
        named = scope.cluster in {tag["Value"] for tag in pages if tag["Key"].endswith("/cluster-name")}
        if issuer or named or scope.fleet in {tag["Value"] for tag in pages if tag["Key"] == FLEET_TAG}:
            known = "issuer of the cluster" if issuer else "cluster tag" if named else OUR_TAG
            kind, own = parse(arn)
            yield Thing(kind, own, (known,), arn=arn, shared=scope.adopted if known != OUR_TAG else "")


def _roles(aws: AwsReader, scope: Scope) -> Iterator[Thing]:
    """Yield the fleet's roles, which AWS's tag API does not list, and the instance profiles with one of them."""
    form = _named("roles")
    roles = [role for role in aws.pages("iam", "list_roles", "Roles") if form.fullmatch(role["RoleName"])]
    ours = set()
    for role in roles:
        tags = {"Tags": _of_what_goes(partial(aws.pages, "iam", "list_role_tags", "Tags", RoleName=role["RoleName"]))}
        if tags_of(tags).get(FLEET_TAG) == scope.fleet:
            ours.add(role["RoleName"])
            yield Thing("iam:role", role["RoleName"], (OUR_TAG,), arn=role["Arn"], facts=role)
    for profile in aws.pages("iam", "list_instance_profiles", "InstanceProfiles") if ours else ():
        held = [role["RoleName"] for role in profile.get("Roles") or () if role["RoleName"] in ours]
        if held:
            own, about = profile["InstanceProfileName"], (f"with role {held[0]}",)
            made = "EKS" if own.startswith("eks-") else ""
            part_of = "nodes" if made else ""
            facts = {"role": held[0]}
            yield Thing("iam:instance-profile", own, ("its role",), made, profile["Arn"], about, part_of, facts=facts)


def _named(key: str) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(table()[key])})-[0-9a-f]{{7}}")


def _secrets(aws: AwsReader, scope: Scope) -> Iterator[Thing]:
    filters = [{"Key": "tag-value", "Values": [scope.fleet]}]
    pages = aws.pages("secretsmanager", "list_secrets", "SecretList", IncludePlannedDeletion=True, Filters=filters)
    for secret in pages:
        if tags_of(secret).get(FLEET_TAG) == scope.fleet:
            when = secret.get("DeletedDate")
            about = (f"pending deletion since {when:%Y-%m-%d}",) if when else ()
            kind, own = parse(secret["ARN"])
            yield Thing(kind, own, (OUR_TAG,), arn=secret["ARN"], about=about, facts=secret)


def _images(aws: AwsReader, scope: Scope) -> Iterator[Thing]:
    """Yield Image Builder's records of builds: they hold nothing, and stay when recipe and pipeline go."""
    form = _named("recipes")
    for image in aws.pages("imagebuilder", "list_images", "imageVersionList", owner="Self"):
        if not form.fullmatch(str(image.get("name"))):
            continue
        of_image = {"imageVersionArn": image["arn"]}
        builds = partial(aws.pages, "imagebuilder", "list_image_build_versions", "imageSummaryList", **of_image)
        for build in _of_what_goes(builds):
            names = [ami.get("name", "") for ami in (build.get("outputResources") or {}).get("amis") or ()]
            if names and not any(name.startswith(f"{scope.fleet}-gpu-") for name in names):
                continue
            known, shared = ("name of its machine image", "") if names else ("name", "any fleet has such names")
            kind, own = parse(build["arn"])
            yield Thing(kind, own, (known,), "EC2 Image Builder", build["arn"], tuple(names), shared=shared)


# AWS's tag API lists for a while what was deleted.


def _still_there(aws: AwsReader, things: Sequence[Thing]) -> tuple[Thing, ...]:
    """Return the things without those that only a tag's list has, and that their own service does not have any more."""
    stale: set[tuple[str, str]] = set()
    listed: dict[tuple[str, str], Mapping[str, Any]] = {}
    unseen: dict[str, list[str]] = {}
    for thing in things:
        if not thing.facts and not thing.about:
            unseen.setdefault(thing.kind, []).append(thing.id)
    for kind, ids in unseen.items():
        try:
            there = _there(aws, kind, ids)
        except Unavailable:
            continue
        if there is not None:
            stale |= {(kind, own) for own in ids if own not in there}
            listed |= {(kind, own): answer for own, answer in there.items()}
    clusters = {own for kind, own in stale if kind == "eks:cluster"}
    result = []
    for thing in things:
        if (thing.kind, thing.id) in stale or (
            thing.kind.startswith("eks:") and thing.id.partition("/")[0] in clusters
        ):
            continue
        answer = listed.get((thing.kind, thing.id), {})
        if answer and thing.kind in kinds():
            (thing,) = merged([thing, of_answer(thing.kind, answer, aws.region)])
        result.append(replace(thing, facts=answer) if answer else thing)
    return tuple(result)


def _there(aws: AwsReader, kind: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]] | None:
    """Return those that exist, with AWS's answer; None where their service is not asked. Raises Unavailable."""
    row = kinds().get(kind)
    if row and "filter" in row:
        chunks = (ids[start : start + _MOST_VALUES] for start in range(0, len(ids), _MOST_VALUES))
        answers = (answer for chunk in chunks for answer in described(aws, kind, {row["filter"]: chunk}))
        return {str(answer[row["id"]]): answer for answer in answers}
    single: dict[str, Callable[[str], Mapping[str, Any]]] = {
        "eks:cluster": lambda own: aws.read("eks", "describe_cluster", name=own),
        "ecr:repository": lambda own: aws.read("ecr", "describe_repositories", repositoryNames=[own]),
        "kms:key": lambda own: aws.read("kms", "describe_key", KeyId=own)["KeyMetadata"],
        "logs:log-group": lambda own: _exact_group(aws, own),
    }
    if kind not in single:
        return None
    there: dict[str, Mapping[str, Any]] = {}
    for own in ids:
        try:
            there[own] = single[kind](own)
        except NotFound:
            continue
    return there


def _exact_group(aws: AwsReader, name: str) -> Mapping[str, Any]:
    for group in aws.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name):
        if group["logGroupName"] == name:
            return group
    raise NotFound(f"log group {name}")
