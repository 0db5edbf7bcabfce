"""The table of alerts: when GPUs, nodes, runners and capacity of a fleet need a person.

A new alert is an `Alert` here, an entry of its name in `paddock/runbooks`, and a case in the tests. One table is one
file, also where it is long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta

from paddock.catalog.github import RUNNER_GRACE_DAYS, runner_releases, runner_successor, runners_read, tag_runner
from paddock.catalog.xids import xids
from paddock.fleet import Fleet
from paddock.fleet.model.pool import CapacityBlock
from paddock.labels import POOL
from paddock.monitoring.metrics.counters import growth
from paddock.monitoring.metrics.kube_state_metrics import NODE_LABELS
from paddock.monitoring.rules import Alarm, Alert, Group, Recording

HOT = 93
"""Degrees Celsius taken for the limit of a GPU that says none; T4 and A10G name theirs."""
LEAST_MARGIN = 3
"""Degrees Celsius below the limit: from here a GPU is about to slow itself down."""
QUEUE_SECONDS = 1200
"""A GPU node from nothing to its first step takes up to ten minutes; twice that is more than a cold start."""
WARN_DAYS = 9
"""Days before GitHub's limit: time for an image and a rollout."""
_WARN_HOURS = 48
_IDLE_MINUTES = 60

GPUS = "node:dcgm_gpus:count"
MARGIN = "gpu:dcgm_thermal_margin:celsius"
LAST_XID = "gpu:dcgm_xid:last"
"""One series a GPU, with the number of its last Xid as label `xid`: dcgm-exporter publishes it as the value.

A GPU without any Xid may have no series at all, so that a change of the value would miss its first one.
"""

_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_CAPACITY = 'kube_node_status_capacity{resource="nvidia_com_gpu"}'
_ALLOCATABLE = 'kube_node_status_allocatable{resource="nvidia_com_gpu"}'
_LISTENERS = 'namespace=~"arc-systems.*", pod=~".+-listener"'
_RUNNERS = 'namespace=~"arc-runners.*"'
_STARTUP = "gha_job_startup_duration_seconds"
_HELD = (
    'sum by (node) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} '
    '* on(namespace, pod) group_left() (kube_pod_status_phase{phase="Running"} == 1)) > 0'
)


def groups(fleet: Fleet, runner_version: str) -> tuple[Group, ...]:
    """Return the rules of a fleet by group. `runner_version` is that of runners whose image names none."""
    listeners = (_listener_absent(runner.scale_set) for runner in fleet.runners.values())
    versions = (alert for version in sorted(_versions(fleet, runner_version)) for alert in _version_ends(version))
    kept = sum(pool.nodes.min for pool in fleet.pools.values())
    blocks = (
        _block_ends(name, datetime.fromisoformat(pool.capacity.ends))
        for name, pool in fleet.pools.items()
        if isinstance(pool.capacity, CapacityBlock) and pool.capacity.ends
    )
    return (
        *_OF_EVERY_FLEET,
        Group("runners", (*_RUNNERS_WAIT, *listeners, *versions)),
        Group("gpu-capacity", (*_unused(kept), *blocks, *_gpus_missing(_gpus_of_types(fleet)))),
    )


def every_kind() -> tuple[Alert, ...]:
    """Return each alert that a fleet can have once, for what knows no fleet."""
    return (
        *(alert for group in _OF_EVERY_FLEET for alert in group.alerts),
        *_RUNNERS_WAIT,
        _listener_absent("SCALE-SET"),
        *_version_ends(list(runner_releases())[-1]),
        *_unused(0),
        _block_ends("POOL", datetime(2026, 12, 1, 11, 30, tzinfo=UTC)),
        *_gpus_missing({("POOL", "p5.48xlarge"): 8}),
    )


HEALTH = Group(
    "gpu-health",
    (
        # MIG devices have series of their own: a GPU is counted once.
        Recording(GPUS, "count by (Hostname, modelName) (count by (Hostname, modelName, gpu) (DCGM_FI_DEV_GPU_TEMP))"),
        # `or` takes the first that a GPU has: its limit, its own margin (Hopper and later), a limit for all.
        Recording(
            MARGIN,
            "(DCGM_FI_DEV_SLOWDOWN_TEMP > 0) - DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_LIMIT + 0 "
            f"or {HOT} - DCGM_FI_DEV_GPU_TEMP",
        ),
        Alert(
            "GpuLost",
            f"{GPUS} < max_over_time({GPUS}[6h])",
            5,
            "critical",
            "{{ $labels.Hostname }} has only {{ $value }} of its {{ $labels.modelName }} left",
            "cordon the node and replace it: a GPU that left the bus comes back with a reboot at best",
        ),
        Alert(
            "GpuUncorrectableEccError",
            "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[5m]) > 0",
            1,
            "critical",
            f"{_GPU}: uncorrectable memory error",
            "reset the GPU; replace the node if it returns",
            Alarm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Sum", minutes=5),
        ),
        Alert(
            "GpuRowRemapFailure",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            1,
            "critical",
            f"{_GPU}: a failed memory row could not be remapped",
            "replace the node",
            Alarm("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        ),
        Alert(
            "GpuTooHot",
            f"{MARGIN} <= {LEAST_MARGIN}",
            5,
            "warning",
            f"{_GPU}: {{{{ $value }}}} degrees Celsius below the temperature at which it slows down",
            "replace the node if it stays",
            Alarm(
                "DCGM_FI_DEV_GPU_TEMP",
                comparison="GreaterThanOrEqualToThreshold",
                threshold=HOT - LEAST_MARGIN,
                periods=5,
            ),
        ),
        # By node: one node that is seen would hide all the others from `absent()`.
        Alert(
            "GpuMetricsMissing",
            f'{_CAPACITY} > 0 unless on(node) label_replace(DCGM_FI_DEV_GPU_TEMP, "node", "$1", "Hostname", "(.+)")',
            15,
            "warning",
            "{{ $labels.node }} has GPUs and no GPU metrics",
            "check the dcgm-exporter pod on the node",
        ),
    ),
)

NODES = Group(
    "gpu-nodes",
    (
        Alert(
            "GpuNotAllocatable",
            f"{_CAPACITY} - on(node) {_ALLOCATABLE} > 0",
            10,
            "warning",
            "{{ $labels.node }} has {{ $value }} GPUs that no pod can get",
            "check the device plugin on the node",
        ),
        # The taint is on every GPU node from its first minute, and nothing else says that GPUs are expected there.
        Alert(
            "GpuNodeWithoutGpus",
            f'kube_node_spec_taint{{key="nvidia.com/gpu"}} unless on(node) ({_CAPACITY} > 0)',
            15,
            "critical",
            "{{ $labels.node }} is a GPU node that offers no GPU",
            "check the device plugin and the driver on the node",
        ),
        # Every rule about nodes and pods is silent without it, and a cluster always has a node.
        Alert(
            "NodeMetricsMissing",
            'absent(kube_node_status_capacity{resource="cpu"})',
            15,
            "warning",
            "no metric of any node comes: alerts about nodes and pods are blind",
            "check kube-state-metrics, and whether Prometheus reads it",
        ),
    ),
)

_RUNNERS_WAIT = (
    Alert(
        "GpuJobsWaiting",
        "gha_assigned_jobs - gha_running_jobs > 0 and gha_running_jobs < gha_max_runners",
        20,
        "warning",
        "{{ $value }} jobs wait for runners of {{ $labels.name }}, which may have more",
        "kubectl describe pods -n arc-runners",
        Alarm("gha_assigned_jobs", "Average", minutes=5, periods=4, less="gha_running_jobs", by_scale_set=True),
    ),
    Alert(
        "QueueSlow",
        f"histogram_quantile(0.95, sum by (le, repository) ({growth(f'{_STARTUP}_bucket', '1h')})) > {QUEUE_SECONDS} "
        f"and on(repository) sum by (repository) ({growth(f'{_STARTUP}_count', '1h')}) >= 5",
        10,
        "warning",
        "1 of 20 jobs of {{ $labels.repository }} waits longer than {{ $value | humanizeDuration }} for its runner",
        "compare nodes.max and max of the runners with the jobs an hour; look for a type without capacity",
    ),
    Alert(
        "GpuPodsPending",
        'count by (namespace) ((kube_pod_status_phase{phase="Pending"} == 1) and on(namespace, pod) '
        '(kube_pod_container_resource_requests{resource="nvidia_com_gpu"} > 0) and on(namespace, pod) '
        "(time() - kube_pod_created > 1200)) > 0",
        1,
        "warning",
        "{{ $value }} pods of {{ $labels.namespace }} have waited for GPUs for more than 20 minutes",
        "kubectl describe pods -n arc-runners --field-selector status.phase=Pending",
    ),
    Alert(
        "ScaleSetFailing",
        "gha_controller_failed_ephemeral_runners > 0",
        10,
        "warning",
        "{{ $value }} runners of {{ $labels.name }} have failed for good",
        "kubectl describe ephemeralrunners -A",
        Alarm("gha_controller_failed_ephemeral_runners", minutes=5, periods=2, by_scale_set=True),
    ),
    # A runner whose pod fails gets another pod of its name.
    Alert(
        "RunnerRestarting",
        f"count by (namespace, pod) (last_over_time(kube_pod_created{{{_RUNNERS}}}[30m])) > 2",
        1,
        "warning",
        "the pod of runner {{ $labels.pod }} fails and is made again",
        "./inv why names the reason; kubectl describe ephemeralrunners -n {{ $labels.namespace }} has the failures",
    ),
    # A listener that is made again has the name of the one before it and another uid; one that restarts has both.
    Alert(
        "ListenerRestarting",
        f"count by (namespace, pod) (last_over_time(kube_pod_created{{{_LISTENERS}}}[15m])) > 3 or "
        f"sum by (namespace, pod) (increase(kube_pod_container_status_restarts_total{{{_LISTENERS}}}[15m])) > 3",
        1,
        "critical",
        "the listener {{ $labels.pod }} starts again and again",
        "kubectl logs -n {{ $labels.namespace }} {{ $labels.pod }}: most often the App's key, its "
        "permission, or two controllers",
    ),
)


def _listener_absent(scale_set: str) -> Alert:
    # Each listener is the only one to export its scale set, so a missing one leaves nothing to compare, and CloudWatch
    # sees no value at all.
    return Alert(
        "ListenerAbsent",
        f'absent(gha_assigned_jobs{{name="{scale_set}"}})',
        10,
        "critical",
        "{{ $labels.name }} has no listener, so GitHub cannot give its jobs to runners",
        "kubectl get pods -A -l app.kubernetes.io/component=runner-scale-set-listener; a set that is "
        "Outdated needs a newer runner",
        Alarm("gha_assigned_jobs", "SampleCount", "LessThanThreshold", 1, 5, 2, missing="breaching", by_scale_set=True),
    )


def _version_ends(version: str) -> Iterator[Alert]:
    """Yield what to say when GitHub's limit for a runner's version comes near and when it is over."""
    if (refused := refused_from(version)) is None:
        return
    age = f'label_replace(vector(time()), "version", "{version}", "", "")'
    fix = "set the newer version in infra/versions.py, build the images again, pulumi up"
    warn = refused - timedelta(days=WARN_DAYS)
    yield Alert(
        "RunnerVersionOld",
        f"{age} > {warn.timestamp():.0f} < {refused.timestamp():.0f}",
        60,
        "warning",
        f"GitHub may give runner {{{{ $labels.version }}}} no more jobs from {refused.date()} on",
        fix,
    )
    yield Alert(
        "RunnerVersionRefused",
        f"{age} >= {refused.timestamp():.0f}",
        60,
        "critical",
        f"GitHub may have given runner {{{{ $labels.version }}}} no more jobs since {refused.date()}",
        fix,
    )


def _unused(kept: int) -> Iterator[Alert]:
    """Yield alerts on idle GPUs; `kept` nodes may stand without a pod, as the pools keep so many."""
    # A GPU in MIG mode has no utilisation of its own, and so no series.
    yield Alert(
        "GpuIdle",
        f"{_HELD} and on(node) label_replace(max by (Hostname) (max_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) == 0, "
        '"node", "$1", "Hostname", "(.+)")',
        _IDLE_MINUTES,
        "info",
        "pods hold {{ $value }} GPUs of {{ $labels.node }} that did nothing for an hour",
        "look for a runner without a job, or a job that waits for something other than its GPU",
    )
    yield Alert(
        "GpuNodesUnused",
        f"count({_ALLOCATABLE} > 0 unless on(node) ({_HELD})) > {kept}",
        _IDLE_MINUTES,
        "info",
        f"{{{{ $value }}}} GPU nodes have had no pod with a GPU for an hour, and the pools keep {kept}",
        "kubectl logs -n kube-system -l app.kubernetes.io/name=aws-cluster-autoscaler says why they stay",
    )


def _block_ends(pool: str, ends: datetime) -> Alert:
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


def _gpus_missing(expected: Mapping[tuple[str, str], int]) -> Iterator[Alert]:
    """Yield the alert on nodes that register fewer GPUs than their type has in its pool."""
    if not expected:
        return
    kind, pool = NODE_LABELS["node.kubernetes.io/instance-type"], NODE_LABELS[POOL]
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


def _gpus_of_types(fleet: Fleet) -> dict[tuple[str, str], int]:
    """Return the number of `nvidia.com/gpu` that a node has by pool and type; 0 is GpuNodeWithoutGpus' own case."""
    counts = {
        (name, kind.name): pool.gpu_resources_per_node(kind)
        for name, pool in fleet.pools.items()
        for kind in pool.types
    }
    return {key: count for key, count in counts.items() if count > 1}


def _versions(fleet: Fleet, default: str) -> set[str]:
    """Return versions of actions/runner that images state; an image that states none is left to its owner."""
    images = {runner.image or fleet.images.runner for runner in fleet.runners.values()}
    stated = {tag_runner(image) if image else default for image in images}
    return {version for version in stated if version}


def refused_from(version: str) -> datetime | None:
    """Return the earliest day on which GitHub may refuse a runner; None for a version that nobody knows."""
    released, successor = runner_releases().get(version), runner_successor(version)
    if released is None:
        return None
    # Where no successor is known, one may have followed on the day after the releases were last read.
    followed = successor[1] if successor else max(released, runners_read())
    return datetime.combine(followed + timedelta(days=RUNNER_GRACE_DAYS), time(), UTC)


def xid_codes() -> dict[str, list[int]]:
    """Return the Xids by what is to be done about them, those to ignore included."""
    by_action: dict[str, list[int]] = defaultdict(list)
    for code, xid in sorted(xids().items()):
        by_action[xid.then or "driver" if xid.action == "workflow" else xid.action].append(code)
    return dict(by_action)


def _xid_alerts() -> Iterator[Alert]:
    """Yield one alert for each action that the catalogue asks for, and one for Xids that it does not know."""
    by_action = xid_codes()
    summary = f"{_GPU}: Xid {{{{ $labels.xid }}}}"

    def last(action: str) -> str:
        return f'{LAST_XID}{{xid=~"{_any(by_action[action])}"}}'

    # What asks for the GPU or its node fires as long as this is the last Xid; the others end after half an hour.
    once = f" unless {LAST_XID} offset 30m"
    yield Alert("GpuXidReset", last("reset"), 1, "critical", summary, "drain the node, then reset the GPU",
                Alarm("DCGM_FI_DEV_XID_ERRORS"))  # fmt: skip
    yield Alert("GpuXidReboot", last("reboot"), 1, "critical", summary, "drain the node, then replace or reboot it")
    yield Alert("GpuXidReplace", last("replace"), 1, "critical", summary, "drain the node and replace it")
    yield Alert("GpuXidDriver", last("driver"), 1, "warning", summary,
                "drain the node; nvidia-smi -q names the action that the driver asks for")  # fmt: skip
    yield Alert("GpuXidJob", last("restart-app") + once, 1, "info", summary,
                "the GPU is fine: the job that ran there then has the fault, see its log")  # fmt: skip
    known = _any([code for numbers in by_action.values() for code in numbers])
    yield Alert("GpuXidUnknown", f'{LAST_XID}{{xid!~"{known}"}}{once}', 1, "warning",
                f"{summary}, of which no source says what to do",
                "drain the node and ask NVIDIA's support")  # fmt: skip


def _any(numbers: list[int]) -> str:
    return "|".join(map(str, sorted(numbers)))


XIDS = Group(
    "gpu-xids",
    (
        Recording(LAST_XID, 'count_values by (Hostname, gpu, UUID, modelName) ("xid", DCGM_FI_DEV_XID_ERRORS > 0)'),
        *_xid_alerts(),
    ),
)
_OF_EVERY_FLEET = (HEALTH, XIDS, NODES)
