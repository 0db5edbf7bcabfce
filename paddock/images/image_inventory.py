"""The images that a fleet names and those of ours that the engine has: where each is pinned and what is known of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Protocol

from infra import versions
from paddock import catalog
from paddock.catalog.cuda_match import tag_cuda
from paddock.catalog.github import tag_runner
from paddock.fleet import Fleet
from paddock.fleet.model.cluster import NewCluster
from paddock.images.docker import Docker, Layer, Local
from paddock.images.errors import BuildError
from paddock.images.recipes import labels

RUNNER_IMAGE = "ghcr.io/actions/actions-runner"
"""GitHub's own, for runners that name none."""
DEFAULT = "ACTIONS_RUNNER in infra/versions.py"
GATEWAY = "serving.gateway.image"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image. None is what neither its name nor the engine says."""

    reference: str
    """The reference as written: `name:tag`, `name@sha256:...` or both."""
    pinned: tuple[str, ...] = ()
    """Keys of the stack file, or a constant of the program; none for an image that only the engine has."""
    runners: tuple[str, ...] = ()
    """Runners of the fleet that use it."""
    cuda: str | None = None
    runner: str | None = None
    """Version of actions/runner in it."""
    built: date | None = None
    packages: date | None = None
    """The earliest day of its packages, from its label."""
    architecture: str | None = None
    """Docker's name of it: amd64, arm64."""
    size_bytes: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    digests: tuple[str, ...] = ()
    """`name@sha256:...` of the registries that the engine knows it from."""
    local: bool = False

    @property
    def name(self) -> str:
        tag = self.tag
        name = self.reference.partition("@")[0]
        return name.removesuffix(f":{tag}") if tag else name

    @property
    def tag(self) -> str | None:
        name, colon, tag = self.reference.partition("@")[0].rpartition(":")
        return tag if colon and name and "/" not in tag else None

    @property
    def digest(self) -> str | None:
        return self.reference.partition("@")[2] or None

    @property
    def is_own(self) -> bool:
        return labels.CONTENT in self.labels

    @property
    def base(self) -> tuple[str, str] | None:
        """Name and digest of the image it was built on."""
        name, digest = self.labels.get(labels.BASE_NAME), self.labels.get(labels.BASE_DIGEST)
        return (name, digest) if name and digest else None

    def document(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "image": self.reference,
            "name": self.name,
            "tag": self.tag,
            "digest": self.digest,
            "cuda": self.cuda,
            "runner": self.runner,
            "built": self.built.isoformat() if self.built else None,
            "size_bytes": self.size_bytes,
            "pinned": list(self.pinned),
            "local": self.local,
        }


class Engine(Protocol):
    """The part of the engine that knows images."""

    def image(self, reference: str) -> Local | None: ...
    def images(self, label: str) -> tuple[str, ...]: ...
    def layers(self, reference: str) -> tuple[Layer, ...]: ...


def engine_here() -> tuple[Engine | None, str]:
    """Return the engine of this machine, or why there is none: what the stack file says can be said without."""
    try:
        return Docker.find(os.environ), ""
    except BuildError as error:
        return None, str(error).splitlines()[0]


def of_fleet(fleet: Fleet, engine: Engine | None) -> tuple[ImageRecord, ...]:
    """Images of the fleet's runners and its gateway, each once, with what the engine adds if there is one."""
    records: dict[str, ImageRecord] = {}
    shared = fleet.images.runner
    if shared:
        records[shared] = ImageRecord(shared, ("images.runner",))
    for name, runner in fleet.runners.items():
        reference = runner.image or shared or f"{RUNNER_IMAGE}:{versions.ACTIONS_RUNNER}"
        key = f"runners.{name}.image" if runner.image else "images.runner" if shared else DEFAULT
        image = records.get(reference, ImageRecord(reference))
        pinned = image.pinned if key in image.pinned else (*image.pinned, key)
        records[reference] = replace(image, pinned=pinned, runners=(*image.runners, name))
    if fleet.serving:
        records[fleet.serving.gateway.image] = ImageRecord(fleet.serving.gateway.image, (GATEWAY,))
    return tuple(_with_facts(image, engine) for image in records.values())


def of_engine(engine: Engine, but: Iterable[ImageRecord]) -> tuple[ImageRecord, ...]:
    """Images of ours in the engine, without those that are pinned already."""
    pinned = {digest for image in but for digest in image.digests} | {image.reference for image in but}
    records = [_with_facts(ImageRecord(reference), engine) for reference in engine.images(labels.CONTENT)]
    return tuple(record for record in records if record.reference not in pinned and not pinned & set(record.digests))


def of_program(fleet: Fleet) -> Iterator[ImageRecord]:
    """Yield the images that the program installs, by their own names: charts and the mirror define their source."""
    minor = fleet.cluster.version
    if fleet.holds("runners"):
        yield _versioned("gha-runner-scale-set-controller", versions.ARC, "ARC")
        if any(runner.container == "dind" for runner in fleet.runners.values()):
            yield _versioned("docker", versions.DOCKER_DIND, "DOCKER_DIND")
        if any(runner.warm for runner in fleet.runners.values()) and minor in versions.KUBECTL:
            yield _versioned("kubectl", versions.KUBECTL[minor], "KUBECTL")
    if fleet.holds("cluster"):
        yield _versioned("k8s-device-plugin", f"v{versions.NVIDIA_DEVICE_PLUGIN}", "NVIDIA_DEVICE_PLUGIN")
        yield _versioned("node-feature-discovery", versions.NODE_FEATURE_DISCOVERY, "NODE_FEATURE_DISCOVERY")
        if fleet.owns_nodes and minor in versions.CLUSTER_AUTOSCALER:
            yield _versioned("cluster-autoscaler", versions.CLUSTER_AUTOSCALER[minor], "CLUSTER_AUTOSCALER")
        if fleet.monitoring.enabled:
            yield _versioned("dcgm-exporter", versions.DCGM_EXPORTER_IMAGE, "DCGM_EXPORTER_IMAGE")
    if fleet.serving:
        image = fleet.serving.image
        yield ImageRecord(image or versions.RAY_LLM, ("serving.image" if image else "RAY_LLM in infra/versions.py",))


def processors(fleet: Fleet, runners: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return Docker's names of the nodes' architectures, by pool of these runners."""
    pools = dict.fromkeys(fleet.runners[name].pool for name in runners)
    return {pool: _architectures(fleet.pools[pool].instances) for pool in pools}


def system_processors(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Return those of the nodes on which the gateway runs; empty for a cluster of somebody else."""
    cluster = fleet.cluster
    return {"cluster.system": _architectures(cluster.system.instances)} if isinstance(cluster, NewCluster) else {}


def _architectures(instances: Iterable[str]) -> tuple[str, ...]:
    found = (catalog.instance(name).arch for name in instances)
    return tuple(dict.fromkeys({"x86_64": "amd64"}.get(name, name) for name in found))


def _versioned(name: str, tag: str, constant: str) -> ImageRecord:
    return ImageRecord(f"{name}:{tag}", (f"{constant} in infra/versions.py",))


def _with_facts(image: ImageRecord, engine: Engine | None) -> ImageRecord:
    """Return the image with the facts of its tag, overridden by those of the image itself where the engine has it."""
    local = engine.image(image.reference) if engine else None
    record = replace(image, cuda=tag_cuda(image.reference), runner=tag_runner(image.reference))
    if local is None:
        return record
    image_labels = local.labels
    return replace(
        record,
        cuda=image_labels.get(labels.CUDA) or record.cuda,
        runner=image_labels.get(labels.RUNNER) or record.runner,
        built=day(image_labels[labels.CREATED]) if labels.CONTENT in image_labels else day(local.created),
        packages=day(image_labels.get(labels.PACKAGES, "")),
        architecture=local.architecture or None,
        size_bytes=local.size_bytes,
        labels=image_labels,
        digests=local.digests,
        local=True,
    )


def day(stamp: str) -> date | None:
    """Return the date of a time in ISO 8601; None where it is not one."""
    try:
        return datetime.fromisoformat(stamp).date()
    except ValueError:
        return None
