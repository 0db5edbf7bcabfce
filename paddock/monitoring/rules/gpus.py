"""Rules over GPUs and their nodes: errors, heat, and GPUs that are missing somewhere on the way to a pod."""

from __future__ import annotations

from paddock.monitoring.rules.alert import Alert, Group, Recording

_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
_CAPACITY = 'kube_node_status_capacity{resource="nvidia_com_gpu"}'
_ALLOCATABLE = 'kube_node_status_allocatable{resource="nvidia_com_gpu"}'

GPUS = "node:dcgm_gpus:count"
MARGIN = "gpu:dcgm_thermal_margin:celsius"

HOT = 93
"""Degrees Celsius taken for the limit of a GPU that says none; T4 and A10G name theirs."""
LEAST_MARGIN = 3
"""Degrees Celsius below the limit: from here a GPU is about to slow itself down."""

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
        ),
        Alert(
            "GpuRowRemapFailure",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            1,
            "critical",
            f"{_GPU}: a failed memory row could not be remapped",
            "replace the node",
        ),
        Alert(
            "GpuTooHot",
            f"{MARGIN} <= {LEAST_MARGIN}",
            5,
            "warning",
            f"{_GPU}: {{{{ $value }}}} degrees Celsius below the temperature at which it slows down",
            "replace the node if it stays",
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
