"""Rules over what is paid for: GPUs that nobody uses, and capacity that ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import CapacityBlock
from paddock.monitoring.metrics.exported import NODE_LABELS
from paddock.monitoring.rules.alert import Alert, Group

_HELD = (
    'sum by (node) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} '
    '* on(namespace, pod) group_left() (kube_pod_status_phase{phase="Running"} == 1)) > 0'
)
_CAPACITY = 'kube_node_status_capacity{resource="nvidia_com_gpu"}'
_WARN_HOURS = 48
_IDLE_MINUTES = 60


def group(fleet: Fleet) -> Group:
    """Return the rules for the fleet's pools."""
    kept = sum(pool.nodes.min for pool in fleet.pools.values())
    blocks = (
        block_ending(name, datetime.fromisoformat(pool.capacity.ends))
        for name, pool in fleet.pools.items()
        if isinstance(pool.capacity, CapacityBlock) and pool.capacity.ends
    )
    return Group("gpu-capacity", (*_idle(kept), *blocks, *missing(_gpus_of_types(fleet))))


def examples() -> tuple[Alert, ...]:
    """Return every kind of alert on capacity once, for a page that knows no fleet."""
    return (
        *_idle(0),
        block_ending("POOL", datetime(2026, 12, 1, 11, 30, tzinfo=UTC)),
        *missing({("POOL", "p5.48xlarge"): 8}),
    )


def _idle(kept: int) -> Iterator[Alert]:
    """Yield alerts on idle GPUs; `kept` nodes may stand without a pod, as the pools keep so many."""
    # A GPU in MIG mode has no utilisation of its own, and so no series.
    yield Alert(
        "GpuIdle",
        f"{_HELD} and on(node) label_replace(max by (Hostname) (max_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) == 0, "
        '"node", "$1", "Hostname", "(.+)")',
        _IDLE_MINUTES,
        "info",
        "pods hold {{ $value }} GPUs of {{ $labels.node }} that did nothing for an hour",
        "look for a runner without a job, or a job that waits for something else than its GPU",
    )
    yield Alert(
        "GpuNodesUnused",
        f'count(kube_node_status_allocatable{{resource="nvidia_com_gpu"}} > 0 unless on(node) ({_HELD})) > {kept}',
        _IDLE_MINUTES,
        "info",
        f"{{{{ $value }}}} GPU nodes have had no pod with a GPU for an hour, and the pools keep {kept}",
        "kubectl logs -n kube-system -l app.kubernetes.io/name=aws-cluster-autoscaler says why they stay",
    )


def _gpus_of_types(fleet: Fleet) -> dict[tuple[str, str], int]:
    """Return the number of `nvidia.com/gpu` that a node has by pool and type; 0 is GpuNodeWithoutGpus' own case."""
    counts = {
        (name, kind.name): pool.gpu_resources_per_node(kind)
        for name, pool in fleet.pools.items()
        for kind in pool.types
    }
    return {key: count for key, count in counts.items() if count > 1}


def missing(expected: Mapping[tuple[str, str], int]) -> Iterator[Alert]:
    """Yield the alert on nodes that register fewer GPUs than their type has in its pool."""
    if not expected:
        return
    kind, pool = NODE_LABELS["node.kubernetes.io/instance-type"], NODE_LABELS[nodes.POOL]
    few = (
        f'({_CAPACITY} > 0 < {count}) and on(node) kube_node_labels{{{pool}="{name}", {kind}="{type_}"}}'
        for (name, type_), count in expected.items()
    )
    yield Alert(
        "GpuMissing",
        " or ".join(few),
        15,
        "critical",
        "{{ $labels.node }} has registered {{ $value }} GPUs, fewer than its type has",
        "replace the node: a GPU is off the bus, or the driver does not start it",
    )


def block_ending(pool: str, ends: datetime) -> Alert:
    """Return the alert on the end of a Capacity Block."""
    left = f'label_replace({ends.timestamp():.0f} - vector(time()), "pool", "{pool}", "", "")'
    return Alert(
        "CapacityBlockEnding",
        f"{left} < {_WARN_HOURS * 3600}",
        1,
        "warning",
        f"the Capacity Block of {{{{ $labels.pool }}}} ends at {ends:%Y-%m-%d %H:%M} UTC; EC2 ends its instances 30 "
        "minutes before",
        "buy the next block and set its ID and end in the pool, or drain the pool's runners",
    )
