"""The dashboard of GPUs: what they do, how they are, and whether pods can have them."""

from __future__ import annotations

from paddock.monitoring.alerts import GPUS, LAST_XID, MARGIN
from paddock.monitoring.dashboards.panel import Dashboard, Panel, Query, Row
from paddock.monitoring.metrics.runner_jobs import BUSY, IDLE, SEEN, by_job, held

_GPU = "{{Hostname}} {{gpu}}"
_REPOSITORY = "{{repository}}"
_NVIDIA = '{resource="nvidia_com_gpu"}'


def _number(title: str, expression: str, description: str, unit: str = "short") -> Panel:
    return Panel(title, (Query(expression, title),), description, unit, "number", 4)


def _graph(title: str, expression: str, description: str, unit: str = "short", legend: str = _GPU) -> Panel:
    return Panel(title, (Query(expression, legend),), description, unit)


DASHBOARD = Dashboard(
    "paddock-gpus",
    "Paddock: GPUs",
    "GPUs of the fleet: use, health, and the pods that have them.",
    (
        Row(
            "Now",
            (
                _number("GPUs", f"sum({GPUS}) or vector(0)", "GPUs that DCGM sees on the present nodes."),
                _number(
                    "Allocatable",
                    f"sum(kube_node_status_allocatable{_NVIDIA}) or vector(0)",
                    "GPUs, or shares of them, that pods may get.",
                ),
                _number(
                    "Held by pods",
                    'sum(kube_pod_container_resource_requests{resource="nvidia_com_gpu"} '
                    '* on(namespace, pod) group_left() (kube_pod_status_phase{phase="Running"} == 1)) or vector(0)',
                    "GPUs that running pods asked for.",
                ),
                _number("Utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)", "Mean over all GPUs.", "percent"),
                _number("Power", "sum(DCGM_FI_DEV_POWER_USAGE)", "Of all GPUs together.", "watt"),
                _number("Hottest", f"min({MARGIN})", "Least distance to the slowdown temperature.", "celsius"),
            ),
        ),
        Row(
            "Use",
            (
                _graph("Utilisation", "DCGM_FI_DEV_GPU_UTIL", "Time in which a kernel ran.", "percent"),
                _graph(
                    "Tensor cores",
                    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
                    "Cycles in which the tensor pipe was active; a busy GPU may leave it idle.",
                    "percentunit",
                ),
                _graph(
                    "Memory used",
                    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)",
                    "Share of the GPU's memory, with what the driver reserves counted in the whole.",
                    "percentunit",
                ),
                _graph("Memory bandwidth", "DCGM_FI_PROF_DRAM_ACTIVE", "Cycles with traffic.", "percentunit"),
                _graph("Power", "DCGM_FI_DEV_POWER_USAGE", "Of each GPU.", "watt"),
                Panel(
                    "PCIe",
                    (
                        Query("DCGM_FI_PROF_PCIE_RX_BYTES", f"{_GPU} received"),
                        Query("DCGM_FI_PROF_PCIE_TX_BYTES", f"{_GPU} sent"),
                    ),
                    "Bytes a second, headers included.",
                    "Bps",
                ),
            ),
        ),
        Row(
            "Use by repository",
            (
                _graph(
                    "GPUs of jobs",
                    by_job(held(), "repository"),
                    "That the pods of a repository's jobs hold.",
                    legend=_REPOSITORY,
                ),
                _graph(
                    "Utilisation of jobs",
                    f"{by_job(BUSY, 'repository')} / {by_job(SEEN, 'repository')}",
                    "Mean over the GPUs of a repository's jobs, where DCGM says what they do.",
                    "percentunit",
                    _REPOSITORY,
                ),
                _graph(
                    "Idle GPUs of jobs",
                    by_job(IDLE, "repository"),
                    "That a job has and did nothing with for five minutes.",
                    legend=_REPOSITORY,
                ),
                _graph(
                    "GPUs by workflow",
                    by_job(held(), "repository", "job_workflow_ref"),
                    "A workflow is named by its file and its branch.",
                    legend="{{job_workflow_ref}}",
                ),
            ),
        ),
        Row(
            "Health",
            (
                _graph("Thermal margin", MARGIN, "Degrees below the temperature at which a GPU slows down.", "celsius"),
                _graph("Last Xid", LAST_XID, "GPUs by the Xid that they had last; see the alerts.", "short",
                       f"{_GPU}: Xid {{{{xid}}}}"),
                _graph(
                    "Uncorrectable memory errors",
                    "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h])",
                    "In an hour. None is normal.",
                ),
                _graph(
                    "Throttled by heat",
                    "rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m])",
                    "Above 0 while heat slows a GPU down. The unit is the driver's, not a share of the time.",
                ),
                _graph(
                    "Remapped rows",
                    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS + DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
                    "Rows of memory that were replaced by spare ones.",
                ),
                _graph(
                    "PCIe replays",
                    "rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[5m]) * 60",
                    "A minute. More than a few point at the slot.",
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                Panel(
                    "GPUs by node",
                    (
                        Query(f"kube_node_status_capacity{_NVIDIA}", "{{node}} has"),
                        Query(f"kube_node_status_allocatable{_NVIDIA}", "{{node}} gives to pods"),
                    ),
                    "A node that gives fewer than it has lost some to errors.",
                ),
                Panel(
                    "Pods that wait for a GPU",
                    (
                        Query(
                            'count by (namespace) ((kube_pod_status_phase{phase="Pending"} == 1) and '
                            'on(namespace, pod) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} > 0))',
                            "{{namespace}}",
                        ),
                    ),
                    "Pods in the phase Pending: without a node, or with an image on its way.",
                ),
            ),
        ),
    ),
)  # fmt: skip
