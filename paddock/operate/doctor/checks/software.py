"""Kubernetes on EKS, machine images, and runner images in ECR: whether AWS still has what the stack names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, NamedTuple

from paddock.catalog.faults import EKS_RELEASE
from paddock.errors import program
from paddock.fleet import GpuPool
from paddock.fleet.model.mirror import PRIVATE_ECR
from paddock.fleet.model.pool import Bottlerocket, Custom, EksManaged
from paddock.image_reference import Reference
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result, Status
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.compatibility import faults
from paddock.plan.compatibility.lifecycle import OLD_IMAGE_DAYS, UPGRADE_DAYS

AREA = "software"
_result = partial(Result, area=AREA)


def kubernetes(context: Context) -> Iterator[Result]:
    """Check EKS's support of the cluster's Kubernetes."""
    cluster = context.fleet.cluster
    subject = f"Kubernetes {cluster.version}"
    answer = context.aws.read("eks", "describe_cluster_versions", clusterVersions=[cluster.version])
    row = next((row for row in answer["clusterVersions"] if row.get("clusterVersion") == cluster.version), None)
    if row is None or row.get("versionStatus") == "UNSUPPORTED":
        fix = f"aws eks describe-cluster-versions --region {context.fleet.region}"
        yield _result(status="fail", subject=subject, message="EKS does not offer this version", fix=fix)
        return
    extended = row.get("versionStatus") == "EXTENDED_SUPPORT"
    end = row.get("endOfExtendedSupportDate" if extended else "endOfStandardSupportDate")
    days = (_day(end) - context.today).days if end else None
    until = f"until {_day(end)}, {days} days from now" if end else "until a date that EKS does not give"
    kind = "extended" if extended else "standard"
    message = f"EKS gives it {kind} support {until}"
    if extended and cluster.support == "standard":
        message += "; with cluster.support: standard EKS upgrades it by itself"
        yield _result(
            status="warn", subject=subject, message=message, fix="a newer cluster.version, one minor at a time"
        )
    elif days is not None and days <= UPGRADE_DAYS:
        yield _result(
            status="warn", subject=subject, message=message, fix="a newer cluster.version, one minor at a time"
        )
    else:
        yield _result(status="pass", subject=subject, message=message)


def machine_image(pool: GpuPool) -> Callable[[Context], Iterator[Result]]:
    """Return the check of the image that a pool's nodes boot."""
    return partial(_machine_image, pool)


class Images(NamedTuple):
    """Machine images that AWS has for a pool, with what they are called and what to do where there are none."""

    label: str
    images: list[dict[str, Any]]
    fix: str


def images(pool: GpuPool, context: Context) -> Images:
    """Return the images that a pool's nodes may boot; none without a label where no image is known.

    Raises Unavailable.
    """
    return context.shared.get(f"images of {pool.name}", lambda: _images(pool, context))


def _images(pool: GpuPool, context: Context) -> Images:
    ami = context.fleet.ami(pool)
    match ami:
        case EksManaged(release=release):
            name = f"amazon-eks-node-al2023-x86_64-nvidia-{ami.kubernetes}-v{release.rpartition('-')[2]}"
            named = [{"Name": "name", "Values": [name]}]
            described = context.aws.read("ec2", "describe_images", Owners=["amazon"], Filters=named)["Images"]
            fix = f"pools.{pool.name}.ami of another release; {program()} catalog.refresh"
            return Images(f"{release} ({name})", described, fix)
        case Bottlerocket(bottlerocket=release):
            fix = f"pools.{pool.name}.ami: another Bottlerocket release"
            return Images(release, _bottlerocket(context, context.fleet.kubernetes(pool), release), fix)
        case Custom(custom=id_):
            fix = f"{program()} ami.list --stack {context.stack.name}"
            try:
                return Images(id_, context.aws.read("ec2", "describe_images", ImageIds=[id_])["Images"], fix)
            except NotFound:
                return Images(id_, [], fix)
        case _:
            return Images("", [], f"pools.{pool.name}.ami")


def _machine_image(pool: GpuPool, context: Context) -> Iterator[Result]:
    subject, known = f"pools.{pool.name} image", images(pool, context)
    if known.images:
        yield _image(subject, known.label, known.images[0], context.today, known.fix)
        if isinstance(pool.ami, Custom):
            yield from _base(subject, pool, known.images[0], known.fix)
        return
    message = f"the catalogue has no EKS image for Kubernetes {context.fleet.cluster.version}"
    if known.label:
        message = f"{known.label} does not exist in {context.fleet.region}, or these credentials may not use it"
    yield _result(status="fail", subject=subject, message=message, fix=known.fix)


def _base(subject: str, pool: GpuPool, image: dict[str, Any], fix: str) -> Iterator[Result]:
    """Yield what is known against the EKS release that an image of one's own was built from, by its tags."""
    tags = {tag["Key"]: tag["Value"] for tag in image.get("Tags") or ()}
    release = tags.get("paddock:release", "")
    if not EKS_RELEASE.fullmatch(release):
        has = f"its tag paddock:release is {release}" if release else "it has no tag paddock:release"
        message = f"which EKS release it was built from, and so its known faults, are not known: {has}"
        yield _result(status="unknown", subject=subject, message=message)
        return
    node = faults.made_from(pool, release)
    found = [(fault.severity, fault.breaks, fault.source) for fault in node.faults()]
    found += [(row.severity, row.without, row.source) for row in node.too_old_for()]
    for severity, breaks, source in found:
        if severity == "info":
            continue
        message = f"built from EKS release {release}: {breaks} ({faults.cited(source)})"
        status: Status = "fail" if severity == "error" else "warn"
        yield _result(status=status, subject=subject, message=message, fix=fix)


def _bottlerocket(context: Context, kubernetes: str, release: str) -> list[dict[str, Any]]:
    """Return the image of a release, which AWS publishes under its version with and without the commit."""
    folder = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}-nvidia/x86_64"
    for version in (release, release.partition("-")[0]):
        try:
            name = f"{folder}/{version}/image_id"
            id_ = context.aws.read("ssm", "get_parameter", Name=name)["Parameter"]["Value"]
            return list(context.aws.read("ec2", "describe_images", ImageIds=[id_])["Images"])
        except NotFound:
            continue
    return []


def _image(subject: str, label: str, image: dict[str, Any], today: date, fix: str) -> Result:
    if image.get("State", "available") != "available":
        message = f"{label} is {image['State']}"
        return _result(status="fail", subject=subject, message=message, fix=fix)
    if not image.get("CreationDate"):
        return _result(status="unknown", subject=subject, message=f"{label} exists; EC2 does not date it")
    created = date.fromisoformat(image["CreationDate"][:10])
    age = (today - created).days
    amount = Amount(name="age", value=age, unit="days", source="ec2:DescribeImages", as_of=created.isoformat())
    message = f"{label} is {image['ImageId']}, {age} days old"
    if age > OLD_IMAGE_DAYS:
        message += f": more than {OLD_IMAGE_DAYS}, so it lacks several fixes of the kernel"
        return _result(status="warn", subject=subject, message=message, fix=fix, amounts=(amount,))
    return _result(status="pass", subject=subject, message=message, amounts=(amount,))


def runner_images(context: Context) -> dict[str, list[str]]:
    """Return the images in private ECR registries that runners start, each with the keys that name it."""
    fleet = context.fleet
    named = {f"runners.{name}.image": runner.image for name, runner in fleet.runners.items() if runner.image}
    if fleet.images.runner:
        named["images.runner"] = fleet.images.runner
    keys: dict[str, list[str]] = {}
    for key, image in named.items():
        image = fleet.mirror.image(image)
        if PRIVATE_ECR.fullmatch(Reference.parse(image).registry):
            keys.setdefault(image, []).append(key)
    return keys


def runner_image(image: str, keys: list[str]) -> Callable[[Context], Iterator[Result]]:
    """Return the check that ECR has an image."""
    return partial(_runner_image, image, keys)


def _runner_image(image: str, keys: list[str], context: Context) -> Iterator[Result]:
    reference, subject = Reference.parse(image), ", ".join(keys)
    registry = PRIVATE_ECR.fullmatch(reference.registry)
    if registry is None:
        raise Unavailable(f"{image} is not in an AWS registry")
    identifier = {"imageDigest": reference.digest} if reference.digest else {"imageTag": reference.tag}
    try:
        details = context.aws.pages(
            "ecr",
            "describe_images",
            "imageDetails",
            region=registry["region"],
            registryId=registry["account"],
            repositoryName=reference.name.partition("/")[2],
            imageIds=[identifier],
        )
    except NotFound as error:
        fix = f"{program()} images.build runner --push --pin {context.stack.name}"
        yield _result(status="fail", subject=subject, message=f"{image}: {error}", fix=fix)
        return
    if not details:
        raise Unavailable(f"ECR says nothing of {image}", "run it again")
    digest, pushed = details[0]["imageDigest"], details[0].get("imagePushedAt")
    day = f", pushed {_day(pushed)}" if pushed else ""
    if reference.digest:
        yield _result(status="pass", subject=subject, message=f"ECR has {digest}{day}")
        return
    message = f"tag {reference.tag} is {digest} now{day}; a tag may be moved"
    fix = f"{keys[0]}: {reference.name}@{digest}"
    yield _result(status="warn", subject=subject, message=message, fix=fix)


def _day(moment: datetime) -> date:
    return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
