"""GPU pools: nodes of one GPU model that are bought, scaled and replaced together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, field_validator, model_validator
from pydantic_core import InitErrorDetails

from paddock import catalog
from paddock.catalog import Gpu, InstanceType
from paddock.catalog.limits import limit
from paddock.fleet.errors import did_you_mean
from paddock.fleet.model.base import Distinct, Matching, Model, NamedModel, Version, below_min, form, mistake, refuse
from paddock.fleet.model.cluster import Scale
from paddock.fleet.model.network import Zone
from paddock.fleet.model.quantity import Memory

ReservationId = Annotated[str, Matching(r"^cr-[0-9a-f]{8,17}$", "a capacity reservation ID: cr-...")]


def _minute(text: str) -> str:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M%z")
    except ValueError:
        raise ValueError(
            f'"{text}" is not a time in UTC; write one as AWS shows it, such as 2026-12-01T11:30Z'
        ) from None
    if not text.endswith("Z"):
        raise ValueError(f'"{text}" is not in UTC; write one that ends with Z, such as 2026-12-01T11:30Z')
    return text


class Reserved(Model):
    """Capacity bought by an On-Demand Capacity Reservation."""

    reserved: ReservationId
    """ID of the reservation."""


class CapacityBlock(Model):
    """Capacity bought by a Capacity Block for ML: fixed start and end, paid up front."""

    capacity_block: ReservationId
    """ID of the Capacity Block's reservation."""
    ends: Annotated[str, AfterValidator(_minute)] | None = None
    """End in UTC, such as 2026-12-01T11:30Z: an alert comes two days before. By default none."""


Capacity = Annotated[
    Annotated[Literal["spot", "on-demand"], Tag("<word>")]
    | Annotated[Reserved, Tag("<reserved>")]
    | Annotated[CapacityBlock, Tag("<capacityBlock>")],
    form(
        "reserved",
        "capacityBlock",
        words=("spot", "on-demand"),
        refusal="not a way to buy capacity; write spot, on-demand, {reserved: cr-...} or {capacityBlock: cr-...}",
    ),
]


class EksManaged(Model):
    """Amazon's AL2023 NVIDIA image for EKS, pinned to a release."""

    release: Annotated[str, Matching(r"^1\.\d+\.\d+-\d{8}$", "an EKS AMI release version, such as 1.36.2-20260714")]
    """EKS AMI release version, such as 1.36.2-20260714."""

    @property
    def kubernetes(self) -> str:
        return ".".join(self.release.split(".")[:2])


class Bottlerocket(Model):
    """Bottlerocket's NVIDIA variant, pinned to a version. It brings its own device plugin."""

    bottlerocket: Annotated[
        str, Matching(r"^\d+\.\d+\.\d+-[0-9a-f]{8}$", "a Bottlerocket release version, such as 1.62.0-1e8d1a37")
    ]
    """Release version, such as 1.62.0-1e8d1a37."""
    kubernetes: Version | None = None
    """Kubernetes minor of the variant; by default the cluster's."""


class Custom(Model):
    """An image of your own, such as one that the fleet's AMI pipeline built from the EKS image."""

    custom: Annotated[str, Matching(r"^ami-[0-9a-f]{8,17}$", "an AMI ID: ami-...")]
    """AMI ID."""
    driver: Annotated[str, Matching(r"^\d+(\.\d+){1,2}$", 'a driver version in quotes, such as "580.159.03"')]
    """NVIDIA driver in it, such as 580.159.03."""
    kubernetes: Version
    """Kubernetes minor of the kubelet in it."""


MINORS_BEHIND = 3
"""Minors that a node may be older than the control plane: Kubernetes' version skew policy since 1.28, which EKS's guide
to upgrades repeats (both read 2026-11-28)."""


def minors_behind(node: str, cluster: str) -> int:
    """Return how many minors a node's Kubernetes is older than the control plane's; negative where it is newer."""
    (major, minor), (cluster_major, cluster_minor) = catalog.version(node)[:2], catalog.version(cluster)[:2]
    return (cluster_major - major) * 1000 + cluster_minor - minor


def minors_for(cluster: str) -> str:
    """Return the Kubernetes of nodes that may join a cluster, in words: `1.33 to 1.36`."""
    major, minor = catalog.version(cluster)[:2]
    return f"{major}.{minor - MINORS_BEHIND} to {cluster}"


Ami = Annotated[
    Annotated[EksManaged, Tag("<release>")]
    | Annotated[Bottlerocket, Tag("<bottlerocket>")]
    | Annotated[Custom, Tag("<custom>")],
    form(
        "release",
        "bottlerocket",
        "custom",
        refusal="not an image for GPU nodes; write {release: 1.36.x-YYYYMMDD}, "
        "{bottlerocket: X.Y.Z-commit} or {custom: ami-..., driver: ..., kubernetes: ...}",
    ),
]


class TimeSlicing(Model):
    """Runners take turns on each GPU: no isolation of memory or faults between them."""

    time_slicing: Annotated[int, Field(ge=2, le=64)]
    """Runners a GPU."""


class Mps(Model):
    """Runners share each GPU through CUDA MPS: concurrent kernels, equal memory limits, shared faults."""

    mps: Annotated[int, Field(ge=2, le=48)]
    """Runners a GPU."""


class Mig(Model):
    """Each GPU is cut into hardware partitions of one profile."""

    mig: Annotated[str, Matching(r"^\d+g\.\d+gb$", "a MIG profile, such as 1g.10gb")]
    """MIG profile, such as 1g.10gb."""


Sharing = Annotated[
    Annotated[Literal["none"], Tag("<word>")]
    | Annotated[TimeSlicing, Tag("<timeSlicing>")]
    | Annotated[Mps, Tag("<mps>")]
    | Annotated[Mig, Tag("<mig>")],
    form(
        "timeSlicing",
        "mps",
        "mig",
        words=("none",),
        refusal="not a way to share a GPU; write none, {timeSlicing: N}, {mps: N} or {mig: PROFILE}",
    ),
]


GP3_IOPS, GP3_THROUGHPUT = 3000, 125
"""Operations a second and MiB/s of every gp3 volume, included in its price."""
BOTTLEROCKET_SYSTEM_GIB = 20
"""Size of the further volume that holds Bottlerocket itself."""


class Disk(Model):
    """The encrypted gp3 root volume of each node."""

    size: Memory = 200 * 1024
    """Holds the system and, without local NVMe, every image and job: CUDA images are 10 GB and more."""
    iops: Annotated[int, Field(ge=GP3_IOPS, le=limit("ebs.gp3-iops"))] = 6000
    """Operations a second; 3000 are free."""
    throughput: Annotated[int, Field(ge=GP3_THROUGHPUT, le=limit("ebs.gp3-throughput"))] = 600
    """MiB/s; parallel image pull wants 600 and more."""

    @model_validator(mode="after")
    def _consistent(self) -> Disk:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[InitErrorDetails]:
        least, most = (
            self.throughput * limit("ebs.gp3-iops-per-throughput"),
            self.size * limit("ebs.gp3-iops-per-gib") // 1024,
        )
        if self.iops < least:
            yield mistake(
                f"gp3 has {self.throughput} MiB/s from {least} operations a second on, and iops is {self.iops}",
                "throughput", f"at most {self.iops // limit('ebs.gp3-iops-per-throughput')}", f"write iops: {least}",
            )  # fmt: skip
        if self.iops > most:
            message = f"{self.iops} operations a second are more than gp3 has at this size"
            yield mistake(message, "iops", f"at most {most}", "lower it, or raise size")


LEAN_DISK = Disk.model_validate({"size": "50Gi", "iops": GP3_IOPS, "throughput": GP3_THROUGHPUT})
"""Enough for the system, where images and jobs live on local NVMe; iops and throughput are what gp3 has for nothing."""

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[
    str,
    # A kubelet does not start with labels of Kubernetes' own domains.
    Matching(
        rf"^(?=.{{1,{limit('eks.label-key')}}}$)(?!([a-z0-9.-]+\.)?(kubernetes|k8s)\.io/)"
        rf"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?{_NAME}$",
        f"a label such as team or example.com/team, at most {limit('eks.label-key')} characters, outside kubernetes.io "
        "and k8s.io",
    ),
]
LabelValue = Annotated[
    str,
    Matching(
        rf"^{_NAME}$",
        f"1 to {limit('eks.label-value')} letters, digits, dashes, dots and underscores, in quotes",
    ),
]


class Update(Model):
    """Replacement of nodes when the pool's image or launch template changes."""

    max_unavailable: Annotated[int, Field(ge=1, le=limit("eks.max-unavailable"))] = 1
    """Nodes replaced at a time."""
    strategy: Literal["default", "minimal"] = "default"
    """`default` starts new nodes first; `minimal` stops old ones first, for GPUs too scarce to have twice."""


class GpuPool(NamedModel):
    """Nodes of one GPU model."""

    instances: Annotated[tuple[str, ...], Field(min_length=1, max_length=limit("eks.instance-types")), Distinct()]
    """EC2 instance types of one GPU model, best first. Spot wants several."""
    capacity: Capacity = "spot"
    """`spot`, `on-demand`, `{reserved: cr-...}` or `{capacityBlock: cr-...}`."""
    fallback: Literal["none", "on-demand"] = "none"
    """What waiting jobs get when there is no spot capacity. `nodes.min` is kept on spot alone."""
    nodes: Scale
    """How many nodes there may be. An empty pool costs nothing."""
    zones: Annotated[tuple[Zone, ...], Distinct()] = ()
    """Zones to buy in; by default all of the network's."""
    sharing: Sharing = "none"
    """`none`, `{timeSlicing: N}`, `{mps: N}` or `{mig: PROFILE}`."""
    ami: Ami | None = None
    """Node image; by default the newest EKS NVIDIA release in the catalogue for the cluster's minor."""
    disk: Disk | None = None
    """Root volume of each node; by default 50Gi where images and jobs live on local NVMe, else a fast 200Gi."""
    nvme: Literal["auto", "none"] = "auto"
    """`auto`: images and job workspaces on a RAID0 of the instance's local NVMe disks, where it has them."""
    max_pods: Annotated[int, Field(ge=8, le=737)] | None = None
    """Pods a node; by default what a GPU node really runs, which returns GiB that the kubelet reserves for more."""
    labels: dict[LabelKey, LabelValue] = {}
    """Further node labels."""
    update: Update = Update()
    """How nodes are replaced."""
    repair: bool = True
    """EKS replaces nodes whose GPU or kubelet it finds broken."""

    @field_validator("instances")
    @classmethod
    def _known_gpu_types(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        refuse(_instance_mistakes(names))
        return names

    @model_validator(mode="after")
    def _consistent(self) -> GpuPool:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[InitErrorDetails]:
        if self.nodes.max < self.nodes.min:
            yield below_min(self.nodes.max, self.nodes.min, at=("nodes", "max"))
        if self.fallback != "none" and self.capacity != "spot":
            yield mistake("only spot capacity can fall back", "fallback", "fallback: none, or capacity: spot")
        profiles = [profile.name for profile in self.gpu.mig]
        if isinstance(self.sharing, Mig) and self.sharing.mig not in profiles:
            message = f"{self.gpu.name} has no MIG profile {self.sharing.mig}"
            expected = (
                f"one of {', '.join(profiles)}" if profiles else "a GPU with MIG, such as the A100 of p4d.24xlarge"
            )
            slices = self.sharing.mig.partition(".")[0]
            alike = next((profile for profile in profiles if profile.partition(".")[0] == slices), "")
            fix = (f"the profile of as many slices is {alike}" if alike else "") or (
                "" if profiles else "share this GPU with {timeSlicing: N} or {mps: N}"
            )
            yield mistake(message, ("sharing", "mig"), expected, fix)
        if isinstance(self.capacity, CapacityBlock | Reserved) and len(self.instances) > 1:
            message = f"a reservation holds one instance type, and there are {len(self.instances)}"
            yield mistake(message, "instances", "the reserved type alone", "make a pool for each other type")

    @cached_property
    def types(self) -> tuple[InstanceType, ...]:
        return tuple(catalog.instance(name) for name in self.instances)

    @cached_property
    def gpu(self) -> Gpu:
        return catalog.gpu(self.types[0].gpu or "")  # every type has one, or the pool would not be valid

    @property
    def on_nvme(self) -> bool:
        """True if images and jobs live on local NVMe, on every type of the pool."""
        return self.nvme == "auto" and all(instance.nvme_count for instance in self.types)

    @property
    def root_disk(self) -> Disk:
        """Root volume of each node: as written, or what is left for it to hold."""
        return self.disk or (LEAN_DISK if self.on_nvme else Disk())

    @property
    def replicas(self) -> int:
        """Resources a GPU is advertised as: 1, or the ways it is shared."""
        match self.sharing:
            case TimeSlicing(time_slicing=n) | Mps(mps=n):
                return n
            case Mig(mig=profile):
                return self.gpu.mig_profile(profile).max_instances
            case _:
                return 1

    def gpu_resources_per_node(self, instance: InstanceType) -> int:
        """`nvidia.com/gpu` that a node of this type offers."""
        return instance.gpu_count * self.replicas


def _instance_mistakes(names: tuple[str, ...]) -> Iterator[InitErrorDetails]:
    catalogued = catalog.instances()
    with_gpu = [name for name, instance in catalogued.items() if instance.gpu]
    models: dict[str, list[str]] = {}
    families = sorted({name.split(".")[0] for name in with_gpu})
    for index, name in enumerate(names):
        if name not in catalogued and (what := catalog.other_type(name)):
            no_gpu = "no GPU" in what
            elsewhere = (
                "keep jobs without GPUs on GitHub's runners or ARC's own chart: docs/moving.md" if no_gpu else ""
            )
            yield mistake(f"{name}: {what}", index, "GPU instance types, such as g4dn.xlarge", elsewhere)
            continue
        if name not in catalogued:
            family = [other for other in with_gpu if other.split(".")[0] == name.split(".")[0]]
            expected = (
                f"one of {', '.join(family)}"
                if family
                else f"a GPU instance type of one of the families {', '.join(families)}"
            )
            fix = did_you_mean(name, family or with_gpu)
            yield mistake(f'unknown instance type "{name}"', index, expected, fix)
            continue
        model = catalogued[name].gpu
        if model is None:
            yield mistake(f"{name} has no GPU", index, "instance types with a GPU, such as g4dn.xlarge")
        else:
            models.setdefault(model, []).append(name)
    if len(models) > 1:
        listed = ", ".join(
            f"{' and '.join(types)} {'has' if len(types) == 1 else 'have'} {catalog.gpu(gpu).name}"
            for gpu, types in models.items()
        )
        fix = "make a pool for each model and give each its runners"
        yield mistake(f"two GPU models in one pool: {listed}", (), "instance types of one GPU model", fix)
