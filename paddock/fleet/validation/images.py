"""Checks of machine images before they are built: disk space, the nodes that boot them, the driver."""

from __future__ import annotations

from collections.abc import Iterator

from paddock import catalog
from paddock.catalog.cuda_match import drives
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.pool import Custom

PRE_PULL_DISK = 50
"""GiB that an image with a runner image in it needs: 10 of the system, 10 of layers as they are pulled, 25 unpacked."""


def problems(fleet: Fleet) -> Iterator[Problem]:
    yield from _build_instances(fleet)
    yield from _push(fleet)
    if fleet.images.ami.enabled:
        yield from _pre_pull(fleet)
        yield from _root_volumes(fleet)
        yield from _driver(fleet)


def _build_instances(fleet: Fleet) -> Iterator[Problem]:
    types = catalog.instances()
    for index, name in enumerate(fleet.images.ami.instances):
        if name not in types or types[name].gpu is None:
            with_gpu = [n for n, t in types.items() if t.gpu]
            what = catalog.other_type(name)
            yield Problem(
                ("images", "ami", "instances", index),
                f"{name} has no GPU to test an image on"
                if name in types
                else f"{name}: {what}"
                if what
                else f'unknown instance type "{name}"',
                "GPU instance types, such as g4dn.xlarge",
                "" if name in types or what else did_you_mean(name, with_gpu),
            )


def _push(fleet: Fleet) -> Iterator[Problem]:
    github, push = fleet.github, fleet.images.push
    if push and push.ids and github.kind == "server":
        yield Problem(
            ("images", "push", "repository"),
            f"tokens of a GitHub Enterprise Server, as {github.host} is, name a repository without ids",
            push.names,
            f"write repository: {push.names}",
        )
    if push and push.provider and push.issuer.rstrip("/") != github.token_issuer:
        yield Problem(
            ("images", "push", "provider"),
            f"a provider for {push.issuer} does not know the tokens of {github.host}, whose issuer is "
            f"{github.token_issuer}",
            f"arn:...:oidc-provider/{github.token_issuer}",
            "aws iam list-open-id-connect-providers prints those of the account; without the key one is made",
        )


def _pre_pull(fleet: Fleet) -> Iterator[Problem]:
    images, build = fleet.images, fleet.images.ami
    if not (images.runner and build.pre_pull):
        return
    if "@" not in images.runner:
        yield Problem(
            ("images", "runner"),
            f"{images.runner} has no digest, so images.ami could not say which image it includes",
            "registry/name@sha256:...",
            "./inv images.build runner --push --pin writes it; or write images.ami.prePull: false",
        )
    if build.disk < PRE_PULL_DISK:
        yield Problem(
            ("images", "ami", "disk"),
            f"{build.disk} GiB are too small for the system and a runner image, pulled and unpacked",
            f"{PRE_PULL_DISK} or more",
            f"write disk: {PRE_PULL_DISK}, or prePull: false",
        )


def _root_volumes(fleet: Fleet) -> Iterator[Problem]:
    least = fleet.images.ami.disk
    for name, pool in fleet.pools.items():
        has = pool.root_disk.size // 1024
        if isinstance(pool.ami, Custom) and has < least:
            yield Problem(
                ("pools", name, "disk"),
                f"a root volume of {has} GiB is smaller than the image's own, and EC2 would refuse to start the nodes",
                f"{least}Gi or more, as images.ami.disk says",
                f"write disk: {{size: {least}Gi}}",
            )


def _driver(fleet: Fleet) -> Iterator[Problem]:
    driver, key = fleet.images.ami.driver, ("images", "ami", "driver")
    if driver is None:
        return
    base = catalog.latest_ami(fleet.cluster.version)
    if base and base.driver and base.driver != driver and not base.driver.startswith(f"{driver}."):
        yield Problem(
            key,
            f"the image is made from EKS {base.release}, which has driver {base.driver}; another is not put on top",
            f'"{base.driver}", or its branch',
            "leave driver out, or take another Kubernetes version: its EKS image may have it",
        )
        return
    pools = fleet.pools.values()
    fits = [drives(driver, pool.gpu, [instance.family for instance in pool.types]).outcome for pool in pools]
    if fits and set(fits) == {"impossible"}:
        families = ", ".join(sorted({instance.family for pool in pools for instance in pool.types}))
        yield Problem(
            key,
            f"R{driver.partition('.')[0]} does not support the GPUs of any pool ({families})",
            "a branch that drives those of one pool",
            "./inv plan says for each pool which driver it needs",
        )
