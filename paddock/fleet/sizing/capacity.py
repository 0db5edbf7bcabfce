"""Capacity of a pool's nodes for jobs, and the request of a runner.

Units everywhere: CPU in millicores, memory and disk in MiB. The arithmetic is the kubelet's on EKS:

    allocatable = capacity - kube-reserved - hard eviction threshold

with kube-reserved as nodeadm computes it (amazon-eks-ami, nodeadm/internal/kubelet/config.go and eni_max_pods.go, as
of 2026-07-23; Karpenter's types.go and Bottlerocket agree). Memory follows the number of pods, which is why few pods a
node give memory back to the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.nodes import measured_memory_mib, readings
from paddock.fleet.model.cluster import KubeconfigCluster
from paddock.fleet.model.fleet import Fleet, once_per_fleet
from paddock.fleet.model.pool import Disk, GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.model.runner import Runner, Scratch
from paddock.fleet.sizing.daemonsets import gpu_node_daemonsets

GIB = 1024

EVICTION_MEMORY_MIB = 100
"""nodeadm: evictionHard memory.available 100Mi."""
EVICTION_DISK_PERCENT = 10
"""nodeadm: evictionHard nodefs.available 10 %."""
RESERVED_DISK_MIB = GIB
"""nodeadm: kubeReserved ephemeral-storage 1Gi."""

KUBELET_MAX_PODS = 110
"""The kubelet's own default, on nodes that Paddock does not configure."""
POD_HEADROOM = 4
"""For DaemonSets of the user's own, and for pods that end while their successors start."""

IMAGES_MIB = 60 * GIB
"""Disk kept for images: two CUDA images of 10 to 20 GB, unpacked."""
WORKSPACE_MAX_MIB = 100 * GIB
"""Most disk a job requests by default: a pool's autoscaler would have to promise more."""
FILESYSTEM_PERCENT = 98
"""Of a disk's size: a 60 GiB volume showed 98.4 % on Bottlerocket, 300 GiB showed 99.9 % on AL2023."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of everything a pod can ask for. `gpus` counts shares where a pool shares its GPUs."""

    cpu_m: int
    memory_mib: int
    gpus: int = 0
    pods: int = 0
    ephemeral_mib: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(*(left + right for left, right in zip(self.amounts(), other.amounts(), strict=True)))

    def __sub__(self, other: Resources) -> Resources:
        return self + other * -1

    def __mul__(self, times: int) -> Resources:
        return Resources(*(amount * times for amount in self.amounts()))

    def amounts(self) -> tuple[int, int, int, int, int]:
        return (self.cpu_m, self.memory_mib, self.gpus, self.pods, self.ephemeral_mib)


@dataclass(frozen=True, slots=True)
class Container:
    """Requests of a container next to the job's, and its memory limit if it has one."""

    cpu_m: int
    memory_mib: int
    memory_limit_mib: int | None = None

    def kubernetes(self) -> dict[str, dict[str, str]]:
        requests = {"cpu": format_cpu(self.cpu_m), "memory": format_memory(self.memory_mib)}
        if self.memory_limit_mib is None:
            return {"requests": requests}
        return {"requests": requests, "limits": {"memory": format_memory(self.memory_limit_mib)}}


DIND = Container(250, 512)
"""The Docker daemon next to a runner. No limit: containers that a job starts live in the daemon's cgroup."""

COORDINATOR = Container(750, GIB, GIB)
"""A runner whose jobs have pods of their own. It hashes the workspace file by file, which takes the CPU."""

JOB_POD_ROOM = Container(250, 256)
"""Left free next to each job's pod for what the hook adds to it: service containers ask for nothing, but run."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """CPU and memory that the kernel of a booted node reports.

    `cautious_memory_mib` is Karpenter's guess before it has seen a node of the type; it never exceeds `memory_mib`.
    """

    cpu_m: int
    memory_mib: int
    source: Literal["measured", "estimated"]
    cautious_memory_mib: int


@dataclass(frozen=True, slots=True)
class KubeReserved:
    """Resources that the kubelet keeps for itself and the system."""

    cpu_m: int
    memory_mib: int
    ephemeral_mib: int


@dataclass(frozen=True, slots=True)
class Allocatable:
    """Resources for pods on a node, and the numbers they follow from."""

    instance: str
    cpu_m: int
    memory_mib: int
    cautious_memory_mib: int
    gpus: int
    pods: int
    ephemeral_mib: int
    capacity: NodeCapacity
    reserved: KubeReserved
    eviction_ephemeral_mib: int


@dataclass(frozen=True, slots=True)
class Share:
    """CPU and memory of a runner's main container."""

    cpu_m: int
    memory_mib: int


@once_per_fleet
def max_pods(fleet: Fleet, pool: GpuPool) -> int:
    """Return the pods a node of the pool may run: as configured, or as many as it really runs, in steps of eight.

    One number a pool, because one launch template serves all its instance types.
    """
    if pool.max_pods is not None:
        return pool.max_pods
    if not fleet.owns_nodes:
        return KUBELET_MAX_PODS
    most = max(pool.gpu_resources_per_node(instance) for instance in pool.types)
    least = min(
        (
            *(runner.gpus for runner in fleet.runners_on(pool)),
            *(model.tensor_parallel for model in fleet.served_on(pool)),
        ),
        default=1,
    )
    pods = len(gpu_node_daemonsets(fleet, pool)) + most // least + POD_HEADROOM
    return min(-(-pods // 8) * 8, *(address_limit(instance) for instance in pool.types))


def capacity(instance: InstanceType) -> NodeCapacity:
    """CPU and memory that a node of this type reports, before it is there."""
    measured = measured_memory_mib(instance.name)
    cautious = _karpenter_memory(instance)
    memory = measured if measured is not None else _estimated_memory(instance)
    return NodeCapacity(
        cpu_m=instance.vcpus * 1000,
        memory_mib=memory,
        source="estimated" if measured is None else "measured",
        cautious_memory_mib=min(cautious, memory),
    )


def reserved(instance: InstanceType, pods: int) -> KubeReserved:
    """nodeadm's kubeReserved for a node with this maxPods.

    CPU: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest. Memory: 11 MiB a pod and
    255 MiB; it follows `maxPodsExpression`, not `maxPods` in the kubelet's configuration.
    """
    bands = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, instance.vcpus * 1000, 25))
    cpu = sum(max(0, min(instance.vcpus * 1000, end) - start) * share // 10_000 for start, end, share in bands)
    return KubeReserved(cpu_m=cpu, memory_mib=11 * pods + 255, ephemeral_mib=RESERVED_DISK_MIB)


@once_per_fleet
def allocatable(fleet: Fleet, pool: GpuPool, instance: InstanceType) -> Allocatable:
    """Return the resources for pods on a node of this type in this pool, DaemonSets included."""
    pods = max_pods(fleet, pool)
    has, keeps = capacity(instance), reserved(instance, pods)
    disk = _disk(fleet, pool, instance)
    eviction_disk = -(-disk * EVICTION_DISK_PERCENT // 100)
    return Allocatable(
        instance=instance.name,
        cpu_m=has.cpu_m - keeps.cpu_m,
        memory_mib=has.memory_mib - keeps.memory_mib - EVICTION_MEMORY_MIB,
        cautious_memory_mib=has.cautious_memory_mib - keeps.memory_mib - EVICTION_MEMORY_MIB,
        gpus=pool.gpu_resources_per_node(instance),
        pods=pods,
        ephemeral_mib=disk - keeps.ephemeral_mib - eviction_disk,
        capacity=has,
        reserved=keeps,
        eviction_ephemeral_mib=eviction_disk,
    )


@once_per_fleet
def available(fleet: Fleet, pool: GpuPool, instance: InstanceType, *, cautious: bool = False) -> Resources:
    """Return the resources for runners: allocatable less the DaemonSets; `cautious` takes Karpenter's guess of memory.

    Pods are limited by the addresses the type can have too, whatever `maxPods` says.
    """
    node = allocatable(fleet, pool, instance)
    daemonsets = gpu_node_daemonsets(fleet, pool)
    pods = min(node.pods, instance.max_pods) if fleet.owns_nodes else node.pods
    memory = node.cautious_memory_mib if cautious else node.memory_mib
    return Resources(
        cpu_m=node.cpu_m - sum(daemonset.cpu_m for daemonset in daemonsets),
        memory_mib=memory - sum(daemonset.memory_mib for daemonset in daemonsets),
        gpus=node.gpus,
        pods=pods - len(daemonsets),
        ephemeral_mib=node.ephemeral_mib,
    )


@once_per_fleet
def default_share(fleet: Fleet, runner: Runner, pool: GpuPool | None = None) -> Share:
    """Return CPU and memory of a runner: as configured, else its share of the pool's smallest instance type.

    `pool`: as if that were the runner's pool.
    """
    pool = pool or fleet.pools[runner.pool]
    shares = [share_of(fleet, runner, instance, pool) for instance in _types_with_enough_gpus(pool, runner)]
    return Share(
        cpu_m=runner.cpu or min(share.cpu_m for share in shares),
        memory_mib=runner.memory or min(share.memory_mib for share in shares),
    )


def share_of(fleet: Fleet, runner: Runner, instance: InstanceType, pool: GpuPool | None = None) -> Share:
    """The runner's part, by GPUs, of a node of this type, rounded down so that nobody has to ask for 3735m.

    Taken from Karpenter's guess of the memory: then every autoscaler buys the node, and what agents use without
    asking for it has a margin.
    """
    return gpu_share(fleet, pool or fleet.pools[runner.pool], instance, runner.gpus, container_mode_overhead(runner))


def gpu_share(fleet: Fleet, pool: GpuPool, instance: InstanceType, gpus: int, room: Container) -> Share:
    """Return the part of a node that goes with so many of its GPUs; `room` is left free next to it."""
    node = available(fleet, pool, instance, cautious=True)
    cpu = node.cpu_m * gpus // max(node.gpus, gpus)
    memory = node.memory_mib * gpus // max(node.gpus, gpus)
    return Share(
        cpu_m=round_down_to_step(cpu - min(room.cpu_m, cpu // 4), 500, 50, 10),
        memory_mib=round_down_to_step(memory - min(room.memory_mib, memory // 4), 512, 256, 64, 16),
    )


@once_per_fleet
def runner_request(fleet: Fleet, runner: Runner, pool: GpuPool | None = None) -> Resources:
    """Return the whole request of the pod that holds the GPU: the runner with its sidecars, or the job's own pod.

    /dev/shm and volumes in memory count inside the memory limit, so nothing is added for them. `pool`: as if that were
    the runner's pool.
    """
    pool = pool or fleet.pools[runner.pool]
    share = default_share(fleet, runner, pool)
    sidecar = sidecars(runner)
    return Resources(
        cpu_m=share.cpu_m + sidecar.cpu_m,
        memory_mib=share.memory_mib + sidecar.memory_mib,
        gpus=runner.gpus,
        pods=1,
        ephemeral_mib=_scratch(runner) + _workspace(fleet, pool, runner),
    )


def sidecars(runner: Runner) -> Container:
    """Return the requests of the containers next to the job in its pod."""
    return DIND if runner.container == "dind" else Container(0, 0)


def container_mode_overhead(runner: Runner) -> Container:
    return {"none": Container(0, 0), "dind": DIND, "kubernetes-novolume": JOB_POD_ROOM}[runner.container]


def _types_with_enough_gpus(pool: GpuPool, runner: Runner) -> tuple[InstanceType, ...]:
    return tuple(instance for instance in pool.types if pool.gpu_resources_per_node(instance) >= runner.gpus)


def _scratch(runner: Runner) -> int:
    """Disk of the runner's own volumes: an emptyDir counts as the pod's ephemeral storage."""
    volumes = runner.volumes.values()
    return sum(volume.scratch for volume in volumes if isinstance(volume, Scratch) and volume.medium == "disk")


def _workspace(fleet: Fleet, pool: GpuPool, runner: Runner) -> int:
    """Disk for checkout and build: the runner's share of what images leave, at least a little."""
    shares = []
    for instance in _types_with_enough_gpus(pool, runner):
        disk = available(fleet, pool, instance).ephemeral_mib
        images = min(IMAGES_MIB, disk // 2)
        shares.append((disk - images) * runner.gpus // pool.gpu_resources_per_node(instance))
    share = min(shares)
    free = max(share - _scratch(runner), min(share, GIB))
    return round_down_to_step(min(free, WORKSPACE_MAX_MIB), GIB, 64)


def round_down_to_step(amount: int, *steps: int) -> int:
    """`amount` rounded down to the first step that costs at most a fifth of it, at least to one last step."""
    step = next((step for step in steps if amount >= 5 * step), steps[-1])
    return max(amount // step * step, steps[-1])


def _karpenter_memory(instance: InstanceType) -> int:
    """Karpenter's capacity of a type it has not launched: 7.5 % off, and 64 MiB more on Arm (types.go, memory)."""
    nominal = instance.memory_mib - (64 if instance.arch == "arm64" else 0)
    return nominal - -(-nominal * 75 // 1000)


def _estimated_memory(instance: InstanceType) -> int:
    """The worst ratio that was ever measured; below the smallest measured type Karpenter's, as small ones lose more.

    Measured ratios rise with size (96.3 % of 16 GiB, 97.4 % of 1152 GiB), so the worst one is low for large types: an
    error on the side that still schedules. A fleet of 70 types lost 1.7 to 5.3 % (pytorch/ci-infra#910, 2026-07).
    """
    measured = {name: (mebibytes, catalog.instance(name).memory_mib) for name, mebibytes in readings().items()}
    if instance.memory_mib < min(nominal for _, nominal in measured.values()):
        return _karpenter_memory(instance)
    return min(instance.memory_mib * mebibytes // nominal for mebibytes, nominal in measured.values())


def address_limit(instance: InstanceType) -> int:
    """Pods by addresses, and by the cap EKS puts on managed node groups: 110 below 30 vCPU, else 250."""
    return min(instance.max_pods, 110 if instance.vcpus < 30 else 250)


def _disk(fleet: Fleet, pool: GpuPool, instance: InstanceType) -> int:
    """Size of the file system that holds images and workspaces: RAID0 of local NVMe, or the root volume."""
    if isinstance(fleet.cluster, KubeconfigCluster):  # nobody here knows how its nodes use their disks
        return (pool.disk or Disk()).size * FILESYSTEM_PERCENT // 100
    if pool.nvme == "auto" and instance.nvme_count:
        return instance.nvme_total_gb * 10**9 // 2**20 * FILESYSTEM_PERCENT // 100
    return pool.root_disk.size * FILESYSTEM_PERCENT // 100
