"""Capacity of nodes and requests of runners, against the published formulae worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import catalog
from paddock.catalog.nodes import measured_memory_mib, readings
from paddock.fleet import Fleet
from paddock.fleet.sizing import capacity, daemonsets
from tests.support.fleets import fleet_data, stack

# Type, vCPU, maxPods by ENI addresses, kubeReserved CPU (m) and memory (MiB), Karpenter's capacity (MiB). Worked on
# paper: 60 + 10 + 2 x 5 + 2.5 for each core beyond four; 11 x pods + 255; size - ceil(size x 0.075).
BY_HAND = [
    ("g6f.large", 2, 20, 70, 475, 7577),
    ("g4dn.xlarge", 4, 29, 80, 574, 15155),
    ("g4dn.2xlarge", 8, 29, 90, 574, 30310),
    ("g4dn.4xlarge", 16, 29, 110, 574, 60620),
    ("g4dn.8xlarge", 32, 58, 150, 893, 121241),
    ("g4dn.12xlarge", 48, 234, 190, 2829, 181862),
    ("g4dn.16xlarge", 64, 58, 230, 893, 242483),
    ("g4dn.metal", 96, 737, 310, 8362, 363724),
    ("g5.xlarge", 4, 58, 80, 893, 15155),
    ("g5.4xlarge", 16, 234, 110, 2829, 60620),
    ("g5.12xlarge", 48, 737, 190, 8362, 181862),
    ("g5.48xlarge", 192, 345, 550, 4050, 727449),
    ("g6.2xlarge", 8, 58, 90, 893, 30310),
    ("g6.16xlarge", 64, 737, 230, 8362, 242483),
    ("g6e.12xlarge", 48, 292, 190, 3467, 363724),
    ("g6e.16xlarge", 64, 737, 230, 8362, 484966),
    ("g6e.48xlarge", 192, 492, 550, 5667, 1454899),
    ("g7e.24xlarge", 96, 632, 310, 7207, 969932),
    ("p3.2xlarge", 8, 58, 90, 893, 57779),
    ("p3.8xlarge", 32, 234, 150, 2829, 231116),
    ("p4d.24xlarge", 96, 737, 310, 8362, 1091174),
    ("p5.4xlarge", 16, 118, 110, 1553, 242483),
    ("p5.48xlarge", 192, 100, 550, 1355, 1939865),
    ("p6-b300.48xlarge", 192, 198, 550, 2433, 3879731),
]


def fleet(pool: dict[str, Any], *runners: dict[str, Any], **more: Any) -> Fleet:
    """A fleet of one pool; its runners are r0, r1, ..."""
    named = {f"r{i}": {"pool": "gpu", **runner} for i, runner in enumerate(runners)}
    return stack(fleet_data(pools={"gpu": {"nodes": {"max": 4}, **pool}}, runners=named, **more)).fleet


def allocatable_on(spec: Fleet, instance: catalog.InstanceType) -> capacity.Allocatable:
    return capacity.allocatable(spec, spec.pools["gpu"], instance)


def runner_request(spec: Fleet) -> capacity.Resources:
    return capacity.runner_request(spec, spec.runners["r0"])


def default_share(spec: Fleet) -> capacity.Share:
    return capacity.default_share(spec, spec.runners["r0"])


def max_pods(spec: Fleet) -> int:
    return capacity.max_pods(spec, spec.pools["gpu"])


@pytest.mark.parametrize(("name", "vcpus", "pods", "cpu", "memory", "karpenter"), BY_HAND)
def test_reserve_and_estimate_follow_the_published_formulae(
    name: str, vcpus: int, pods: int, cpu: int, memory: int, karpenter: int
) -> None:
    instance = catalog.instance(name)
    assert (instance.vcpus, instance.max_pods) == (vcpus, pods)
    assert capacity.reserved(instance, pods) == capacity.KubeReserved(cpu, memory, 1024)
    assert capacity.capacity(instance).cautious_memory_mib == karpenter


@pytest.mark.parametrize(
    ("name", "cautious", "allocatable"), [("g5.xlarge", 15155, 14162), ("g5.12xlarge", 181862, 173400)]
)
def test_karpenters_allocatable_with_the_default_pod_limit(name: str, cautious: int, allocatable: int) -> None:
    instance = catalog.instance(name)
    node = allocatable_on(fleet({"instances": [name], "maxPods": instance.max_pods}), instance)
    assert node.capacity.cautious_memory_mib == cautious
    assert node.cautious_memory_mib == allocatable


@pytest.mark.parametrize(("name", "pods", "cpu", "memory_kib"), [
    ("g4dn.xlarge", 29, 3920, 15474676),  # AL2023, Kubernetes 1.34, 2025-11
    ("p4d.24xlarge", 737, 95690, 1167634920),  # the same, 2025-12
])  # fmt: skip
def test_what_real_nodes_reported_as_allocatable(name: str, pods: int, cpu: int, memory_kib: int) -> None:
    node = allocatable_on(fleet({"instances": [name], "maxPods": pods}), catalog.instance(name))
    assert node.capacity.source == "measured"
    assert (node.cpu_m, node.memory_mib) == (cpu, memory_kib // 1024)


def test_an_unmeasured_type_is_said_to_be_estimated() -> None:
    node = capacity.capacity(catalog.instance("g5.12xlarge"))
    assert measured_memory_mib("g5.12xlarge") is None
    assert node.source == "estimated"
    # The worst measured ratio, g6.4xlarge's 61910 of 65536 MiB.
    assert node.memory_mib == 196608 * 61910 // 65536


@pytest.mark.parametrize("name", sorted(readings()))
def test_measurements_are_of_known_types_and_plausible(name: str) -> None:
    instance = catalog.instance(name)
    assert 0.925 * instance.memory_mib <= readings()[name] < instance.memory_mib


@pytest.mark.parametrize("name", sorted(catalog.instances()))
def test_the_cautious_guess_never_exceeds_the_expected_memory(name: str) -> None:
    node = capacity.capacity(catalog.instance(name))
    assert node.cautious_memory_mib <= node.memory_mib < catalog.instance(name).memory_mib


@given(st.integers(1, 4096), st.integers(0, 1024))
def test_more_memory_never_means_less(gib: int, more: int) -> None:
    small = replace(catalog.instance("g5.xlarge"), name="x.small", memory_mib=gib * 1024)
    large = replace(small, name="x.large", memory_mib=(gib + more) * 1024)
    assert capacity.capacity(small).memory_mib <= capacity.capacity(large).memory_mib
    assert capacity.capacity(small).cautious_memory_mib <= capacity.capacity(large).cautious_memory_mib


# --- pods


@pytest.mark.parametrize(("pool", "runners", "expected"), [
    ({"instances": ["g4dn.xlarge"]}, [{}], 16),  # 8 DaemonSets + 1 job + 4, in steps of 8
    ({"instances": ["g5.48xlarge"]}, [{}], 24),  # 8 + 8 + 4
    ({"instances": ["g5.48xlarge"]}, [{"gpus": 8}], 16),  # 8 + 1 + 4
    ({"instances": ["g5.xlarge", "g5.12xlarge"]}, [{}], 16),  # the larger type decides: 8 + 4 + 4
    ({"instances": ["p4d.24xlarge"], "sharing": {"mig": "1g.5gb"}}, [{}], 72),  # 8 + 56 + 4
    ({"instances": ["g4dn.xlarge"], "sharing": {"timeSlicing": 48}}, [{}], 29),  # addresses end first
    ({"instances": ["g6.16xlarge"], "sharing": {"timeSlicing": 48}}, [{}], 64),  # 8 + 48 + 4
    ({"instances": ["g6.48xlarge"], "sharing": {"mps": 48}}, [{}], 250),  # EKS's cap for managed nodes
    ({"instances": ["g5.xlarge"], "maxPods": 58}, [{}], 58),  # as written
    ({"instances": ["g5.xlarge"]}, [], 16),  # no runner yet
])  # fmt: skip
def test_pods_are_what_a_node_runs(pool: dict[str, Any], runners: list[dict[str, Any]], expected: int) -> None:
    assert max_pods(fleet(pool, *runners)) == expected


def test_few_pods_give_memory_back_to_jobs() -> None:
    instance = catalog.instance("g5.12xlarge")
    default = allocatable_on(fleet({"instances": [instance.name], "maxPods": 737}), instance)
    derived = allocatable_on(fleet({"instances": [instance.name]}, {}), instance)
    assert derived.memory_mib - default.memory_mib == 11 * (737 - 16)


def test_nodes_that_are_not_ours_have_the_kubelets_default() -> None:
    there = fleet({"instances": ["g5.xlarge"]}, {}, cluster={"kubeconfig": "~/.kube/config"})
    assert max_pods(there) == 110


# --- DaemonSets


AWS = {"aws-node", "kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent", "dcgm-server"}
GPU = {"nvidia-device-plugin", "gpu-feature-discovery", "node-feature-discovery-worker"}


@pytest.mark.parametrize(("pool", "runner", "more", "expected"), [
    ({}, {}, {}, AWS | GPU),
    ({"ami": {"bottlerocket": "1.62.0-1e8d1a37"}}, {}, {}, AWS),
    ({"sharing": {"mps": 4}}, {}, {}, AWS | GPU | {"mps-control-daemon"}),
    ({"sharing": {"timeSlicing": 4}}, {}, {}, AWS | GPU),
    ({}, {}, {"monitoring": {"enabled": True}}, AWS | GPU | {"dcgm-exporter"}),
    ({}, {"volumes": {"data": {"volume": "100Gi", "mount": "/data"}}}, {}, AWS | GPU | {"ebs-csi-node"}),
    ({}, {"volumes": {"data": {"scratch": "100Gi", "mount": "/data"}}}, {}, AWS | GPU),
    ({}, {}, {"cluster": {"kubeconfig": "~/.kube/config"}}, GPU),
])  # fmt: skip
def test_daemonsets_of_a_gpu_node(
    pool: dict[str, Any], runner: dict[str, Any], more: dict[str, Any], expected: set[str]
) -> None:
    spec = fleet({"instances": ["g5.xlarge"], **pool}, runner, **more)
    assert {daemonset.name for daemonset in daemonsets.gpu_node_daemonsets(spec, spec.pools["gpu"])} == expected


def test_resources_are_written_as_kubernetes_reads_them() -> None:
    assert daemonsets.DCGM_EXPORTER.kubernetes() == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    # A limit here would end every container that a job starts through Docker.
    assert "limits" not in capacity.DIND.kubernetes()
    assert capacity.COORDINATOR.kubernetes()["limits"] == {"memory": "1Gi"}


def test_a_coordinator_has_the_cpu_to_copy_files_into_jobs() -> None:
    # Below 750m the container hook's copy loop takes minutes: pytorch/ci-infra, osdc.
    assert capacity.COORDINATOR.kubernetes()["requests"]["cpu"] == "750m"


# --- shares and requests


@pytest.mark.parametrize(("pool", "runner", "expected"), [
    # (3920 - 185) m -> 3500m; (15155 - 431 - 100 - 222) MiB = 14402 -> 14 GiB.
    ({"instances": ["g4dn.xlarge"]}, {}, (3500, 14 * 1024)),
    ({"instances": ["g4dn.2xlarge", "g4dn.xlarge"]}, {}, (3500, 14 * 1024)),
    # A quarter of (47810 - 185) m and of (181862 - 431 - 100 - 222) MiB.
    ({"instances": ["g5.12xlarge"]}, {}, (11500, 44 * 1024)),
    ({"instances": ["g5.12xlarge"]}, {"gpus": 4}, (47500, 353 * 512)),
    ({"instances": ["g4dn.xlarge"]}, {"cpu": 2}, (2000, 14 * 1024)),
    ({"instances": ["g4dn.xlarge"]}, {"memory": "8Gi"}, (3500, 8 * 1024)),
    # 3485m and 13890 MiB after the sidecar's 250m and 512Mi.
    ({"instances": ["g4dn.xlarge"]}, {"container": "dind"}, (3000, 27 * 512)),
    # Too few GPUs on the smaller type: it does not count.
    ({"instances": ["g5.xlarge", "g5.12xlarge"]}, {"gpus": 4}, (47500, 353 * 512)),
    # One eighth of an L4: (1930 - 185) m, (7577 - 431 - 100 - 222) MiB.
    ({"instances": ["g6f.large"]}, {}, (1700, 6656)),
    # A twelfth of a node: steps small enough to waste little.
    ({"instances": ["g4dn.xlarge"], "sharing": {"timeSlicing": 12}}, {}, (300, 1152)),
])  # fmt: skip
def test_default_share(pool: dict[str, Any], runner: dict[str, Any], expected: tuple[int, int]) -> None:
    assert default_share(fleet(pool, runner)) == capacity.Share(*expected)


def test_a_pod_asks_for_its_sidecars_too() -> None:
    request = runner_request(fleet({"instances": ["g4dn.xlarge"]}, {"container": "dind"}))
    assert (request.cpu_m, request.memory_mib, request.gpus, request.pods) == (3250, 27 * 512 + 512, 1, 1)


def test_the_jobs_own_pod_is_what_a_gpu_node_holds() -> None:
    plain = runner_request(fleet({"instances": ["g4dn.xlarge"]}, {}))
    hooked = runner_request(fleet({"instances": ["g4dn.xlarge"]}, {"container": "kubernetes-novolume"}))
    assert (hooked.gpus, hooked.pods) == (1, 1)
    assert hooked.memory_mib <= plain.memory_mib - 256  # room for service containers, which ask for nothing


def test_memory_volumes_are_part_of_the_memory_limit() -> None:
    plain = fleet({"instances": ["g4dn.xlarge"]}, {})
    volume = {"ram": {"scratch": "4Gi", "mount": "/ram", "medium": "memory"}}
    with_ram = fleet({"instances": ["g4dn.xlarge"]}, {"shm": "4Gi", "volumes": volume})
    assert runner_request(with_ram) == runner_request(plain)


def test_disk_is_nvme_where_there_is_some() -> None:
    instance = catalog.instance("g4dn.xlarge")
    nvme = allocatable_on(fleet({"instances": [instance.name]}), instance)
    # 125 GB = 119209 MiB, 98 % of it a file system of 116824 MiB; a tenth is the eviction threshold, 1 GiB reserved.
    assert nvme.ephemeral_mib == 116824 - 11683 - 1024
    ebs = allocatable_on(fleet({"instances": [instance.name], "nvme": "none"}), instance)
    assert ebs.ephemeral_mib == 200704 - 20071 - 1024
    raid = allocatable_on(fleet({"instances": ["p4d.24xlarge"]}), catalog.instance("p4d.24xlarge"))
    assert raid.ephemeral_mib == 7476806 - 747681 - 1024


def test_workspace_leaves_room_for_images_and_counts_scratch() -> None:
    plain = runner_request(fleet({"instances": ["g4dn.xlarge"]}, {}))
    assert plain.ephemeral_mib == 50 * 1024  # 104117 - half of it, since 60 GiB would be more than half
    volume = {"cache": {"scratch": "30Gi", "mount": "/cache"}}
    scratch = runner_request(fleet({"instances": ["g4dn.xlarge"]}, {"volumes": volume}))
    assert scratch.ephemeral_mib == 50 * 1024
    large = runner_request(fleet({"instances": ["p4d.24xlarge"]}, {"gpus": 8}))
    assert large.ephemeral_mib == 100 * 1024
