"""Checks of pools: images for the cluster's version, sharing, Capacity Blocks."""

from __future__ import annotations

from collections.abc import Iterator

from paddock import catalog
from paddock.fleet.errors import Problem
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.pool import (
    MINORS_BEHIND,
    Bottlerocket,
    CapacityBlock,
    Custom,
    EksManaged,
    minors_behind,
    minors_for,
)

_SMALLEST_DISK_GIB = 20
"""EKS's AL2023 images are made on 20 GiB (amazon-eks-ami, templates/al2023/variables-default.json, 2026-11-28);
EC2 makes no volume smaller than its snapshot."""


def problems(fleet: Fleet) -> Iterator[Problem]:
    minor = fleet.cluster.version
    without_image = [name for name, pool in fleet.pools.items() if fleet.owns_nodes and fleet.ami(pool) is None]
    if without_image and minor in catalog.eks_versions():  # of another minor the cluster's own check speaks
        yield Problem(
            ("cluster", "version"),
            f"the catalogue has no EKS NVIDIA image for Kubernetes {minor}, and pool {without_image[0]} names no image",
            "a version with an image, or ami: {custom: ami-..., driver: ..., kubernetes: ...} in the pool",
            "./inv catalog.refresh",
        )
    for name, pool in fleet.pools.items():
        ami = pool.ami
        behind = minors_behind(fleet.kubernetes(pool), minor)
        if not 0 <= behind <= MINORS_BEHIND:
            leaf = "release" if isinstance(ami, EksManaged) else "kubernetes"
            newest = fleet.eks_release
            why = "a node may not be newer" if behind < 0 else f"a node may be at most {MINORS_BEHIND} minors older"
            expected = f"an image for {minors_for(minor)}"
            fix = f"leave kubernetes out, for the variant of {minor}"
            if isinstance(ami, Custom):
                fix = f"./inv ami.build makes an image for {minor} (images.ami: {{enabled: true}})"
            elif isinstance(ami, EksManaged):
                expected = f"an image for {minor}" + (f", such as {newest}" if newest else "")
                fix = "leave ami out for the newest in the catalogue"
                if not newest:
                    fix = f"build one (images.ami: {{enabled: true}}), or use {fleet.kubernetes(pool)}"
            yield Problem(
                ("pools", name, "ami", leaf),
                f"the image is for Kubernetes {fleet.kubernetes(pool)}, the cluster runs {minor}: {why}",
                expected,
                fix,
            )
        if isinstance(ami, Bottlerocket) and pool.sharing != "none":
            yield Problem(
                ("pools", name, "sharing"),
                "Bottlerocket brings its own device plugin, which Paddock cannot configure for sharing",
                "sharing: none, or an AL2023 image",
            )
        if pool.disk and pool.disk.size < _SMALLEST_DISK_GIB * 1024 and isinstance(fleet.ami(pool), EksManaged):
            yield Problem(
                ("pools", name, "disk", "size"),
                "EKS's image of a node does not fit on it",
                f"{_SMALLEST_DISK_GIB}Gi or more",
                "leave size out for what the pool needs",
            )
        if isinstance(pool.capacity, CapacityBlock) and pool.types[0].quota_class != "P":
            yield Problem(
                ("pools", name, "capacity"),
                f"{pool.instances[0]} is not sold in Capacity Blocks",
                "spot, on-demand or {reserved: cr-...}",
            )
