"""Versions of the software in a fleet's images and on its nodes, as stack file, image tag or catalogue claim them."""

from __future__ import annotations

from dataclasses import dataclass

from paddock import catalog
from paddock.catalog.cuda_match import tag_cuda, tag_denies_cuda
from paddock.fleet.model.fleet import Fleet, once_per_fleet
from paddock.fleet.model.mirror import parts
from paddock.fleet.model.pool import Bottlerocket, Custom, EksManaged, GpuPool
from paddock.fleet.model.runner import Runner


@dataclass(frozen=True, slots=True)
class VersionClaim:
    """A version and its source; None when nothing claims one, with the reason in `where`.

    `branch` is the driver branch alone, where that is all that is known.
    """

    version: str | None
    where: str
    branch: int | None = None


def image_cuda(fleet: Fleet, runner: Runner) -> VersionClaim:
    """Return the CUDA toolkit of the image a runner's jobs start in."""
    own, shared = runner.image, fleet.images.runner
    if fleet.images.cuda and (own is None or own == shared):
        return VersionClaim(fleet.images.cuda, "images.cuda")
    image, key = (own, f"runners.{runner.name}.image") if own else (shared, "images.runner")
    if image is None:
        return VersionClaim(None, "GitHub's own runner image contains no CUDA: jobs bring their own")
    if tag_denies_cuda(image):
        return VersionClaim(None, f"the image of {key} contains no CUDA: jobs bring their own")
    version = tag_cuda(image)
    return VersionClaim(version, f"tag of {key}" if version else f"{key} does not state it")


def runner_image(fleet: Fleet) -> str | None:
    """Return the image of runners that name none, as containerd's clients file it on a node.

    With a digest it has no tag, and its registry is named even where that is Docker Hub.
    None where they start GitHub's own.
    """
    if fleet.images.runner is None:
        return None
    host, rest = parts(fleet.mirror.image(fleet.images.runner))
    path, at, digest = rest.partition("@")
    folder, slash, last = path.rpartition("/")
    return f"{host}/{folder}{slash}{last.partition(':')[0]}@{digest}" if at else f"{host}/{rest}"


@once_per_fleet
def driver(fleet: Fleet, pool: GpuPool) -> VersionClaim:
    """Return the NVIDIA driver on a pool's nodes, of its image."""
    if not fleet.owns_nodes:
        return VersionClaim(None, "the nodes already exist")
    match fleet.ami(pool):
        case Custom(driver=driver):
            return VersionClaim(driver, f"pools.{pool.name}.ami.driver")
        case EksManaged(release=release):
            if several := catalog.drivers_of(release):
                held = " and ".join(f"R{branch}" for branch in several.branches)
                where = f"image {release} holds drivers {held}, and takes one by instance family at first boot"
                return VersionClaim(None, where, several.branch_for({instance.family for instance in pool.types}))
            version, os = release, "al2023"
        case Bottlerocket(bottlerocket=release):
            version, os = release.split("-")[0], "bottlerocket"
        case _:
            return VersionClaim(None, "the catalogue has no image for this Kubernetes")
    for ami in catalog.eks_amis():
        if ami.os == os and ami.release == version and ami.kubernetes == fleet.kubernetes(pool):
            return VersionClaim(ami.driver, f"image {version}")
    return VersionClaim(None, f"the catalogue does not hold the image {version}")
