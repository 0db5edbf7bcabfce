"""Labels of every metric that rules and dashboards may read, by the exporter that publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from paddock.monitoring.metrics import listener
from paddock.monitoring.metrics.dcgm import dcgm_metrics
from paddock.monitoring.metrics.kube_state_metrics import CUSTOM_RESOURCE_STATE, KUBE_STATE_METRICS

_GPU = frozenset({"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"})
"""Labels of dcgm-exporter 4.8.2 (internal/pkg/rendermetrics; read 2026-11-23).

`Hostname` is the node's name also where the exporter asks another engine; the release after 4.8.2 calls it `hostname`.
Labels of the pod on a GPU are left out: a scrape may rename them, and they change with every job. Only what asks for a
job's use reads them (`runner_jobs.POD_LABELS`).
"""


def _listener() -> dict[str, frozenset[str]]:
    """Return the labels of each series, by its name."""
    series = dict.fromkeys(listener.GAUGES, frozenset(listener.SCALE_SET))
    series |= {name: frozenset(labels) for name, labels in listener.COUNTERS.items()}
    for name, labels in listener.HISTOGRAMS.items():
        series[f"{name}_bucket"] = frozenset((*labels, "le"))
        series[f"{name}_sum"] = series[f"{name}_count"] = frozenset(labels)
    return series


_ARC: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("gha_controller_pending_ephemeral_runners", "gha_controller_running_ephemeral_runners"),
            *("gha_controller_failed_ephemeral_runners", "gha_controller_running_listeners"),
        ),
        frozenset(listener.SCALE_SET),
    ),
    **_listener(),
}
"""ARC 0.14.2: controllers/actions.github.com/metrics (read 2026-11-24), and what `listener` gives the chart. Durations
are of no scale set: their series name the repository and the workflow of a job.
"""


@cache
def exported() -> Mapping[str, frozenset[str]]:
    """Return the labels of each metric, by its name."""
    return {
        **dict.fromkeys(dcgm_metrics(), _GPU),
        **KUBE_STATE_METRICS,
        **CUSTOM_RESOURCE_STATE,
        **_ARC,
    }
