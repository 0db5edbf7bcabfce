"""Prometheus rules over the metrics of DCGM, ARC and kube-state-metrics."""

from __future__ import annotations

from typing import Any


def _alert(name: str, expression: str, minutes: int, severity: str, summary: str, action: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": f"{minutes}m",
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "action": action},
    }


_GPU = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"

RULES: dict[str, Any] = {
    "groups": [
        {
            "name": "gpu-health",
            "rules": [
                _alert("GpuUncorrectableEccError", "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[5m]) > 0", 1, "critical",
                       f"{_GPU}: uncorrectable memory error", "reset the GPU; replace the node if it returns"),
                _alert("GpuRowRemapFailure", "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", 1, "critical",
                       f"{_GPU}: a failed memory row could not be remapped", "replace the node"),
                _alert("GpuXidError", "DCGM_FI_DEV_XID_ERRORS > 0 and changes(DCGM_FI_DEV_XID_ERRORS[10m]) > 0", 1,
                       "warning", f"{_GPU}: Xid {{{{ $value }}}}", "look the Xid up in NVIDIA's Xid catalogue"),
                _alert("GpuTooHot", "DCGM_FI_DEV_GPU_TEMP > 90", 5, "warning",
                       f"{_GPU}: {{{{ $value }}}} degrees Celsius", "replace the node if it stays"),
                # By node: one node that is seen would hide all the others from `absent()`.
                _alert("GpuMetricsMissing", 'kube_node_status_capacity{resource="nvidia_com_gpu"} > 0 unless on(node) '
                       'label_replace(DCGM_FI_DEV_GPU_TEMP, "node", "$1", "Hostname", "(.+)")', 15, "warning",
                       "{{ $labels.node }} has GPUs and no GPU metrics", "check the dcgm-exporter pod on the node"),
            ],
        },
        {
            "name": "gpu-capacity",
            "rules": [
                _alert("GpuNotAllocatable", 'kube_node_status_capacity{resource="nvidia_com_gpu"} - on(node) '
                       'kube_node_status_allocatable{resource="nvidia_com_gpu"} > 0', 10, "warning",
                       "{{ $labels.node }} has GPUs that no pod can get", "check the device plugin on the node"),
                _alert("GpuJobsWaiting", "gha_assigned_jobs - gha_running_jobs > 0", 20, "warning",
                       "jobs wait for runners of {{ $labels.name }}", "kubectl describe pods -n arc-runners"),
                _alert("ScaleSetFailing", "gha_controller_failed_ephemeral_runners > 0", 10, "warning",
                       "runners of {{ $labels.name }} fail to start",
                       "kubectl describe ephemeralrunners -n arc-runners"),
            ],
        },
    ]
}  # fmt: skip
