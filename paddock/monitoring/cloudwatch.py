"""CloudWatch in the place of Prometheus: what is sent there, and the alarms and the dashboard on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paddock.fleet import Fleet
from paddock.monitoring import scraping
from paddock.monitoring.alerts import every_kind, xid_codes
from paddock.monitoring.rules import Alarm, Alert

METRICS_NAMESPACE = "Paddock"
FLEET, SCALE_SET = "fleet", "name"
"""Dimensions. CloudWatch takes money for each combination of values: no GPU and no job is one."""

_OF_GPUS = (
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)
_XID = "DCGM_FI_DEV_XID_ERRORS"
_OF_SETS = (
    "gha_assigned_jobs",
    "gha_controller_failed_ephemeral_runners",
    "gha_idle_runners",
    "gha_running_jobs",
)
METRICS = (*_OF_GPUS, _XID, *_OF_SETS)
HEALTH_PORT = 13133


def alarms(fleet: Fleet) -> Iterator[tuple[Alert, Alarm, str]]:
    """Yield each alarm of a fleet with its alert and its scale set, which is empty for all GPUs of the fleet."""
    for alert in every_kind():
        if alarm := alert.alarm:
            sets = [runner.scale_set for runner in fleet.runners.values()] if alarm.by_scale_set else [""]
            yield from ((alert, alarm, scale_set) for scale_set in sets)


def collector(fleet: Fleet, log_group: str) -> dict[str, Any]:
    """Return the configuration of the OpenTelemetry collector: from the exporters to CloudWatch, and nothing else."""
    keep = {"action": "keep", "source_labels": ["__name__"], "regex": "|".join(METRICS)}
    name = {"target_label": FLEET, "replacement": fleet.name}
    jobs = [{**job, "metric_relabel_configs": [keep, name]} for job in scraping.exporters(fleet)]
    severe = [code for action in ("reset", "reboot", "replace") for code in xid_codes()[action]]
    return {
        "extensions": {"health_check": {"endpoint": f"0.0.0.0:{HEALTH_PORT}"}},
        "receivers": {"prometheus": {"config": {"global": {"scrape_interval": "60s"}, "scrape_configs": jobs}}},
        "processors": {
            "memory_limiter": {"check_interval": "1s", "limit_percentage": 80, "spike_limit_percentage": 20},
            "batch": {"timeout": "30s"},
        },
        "exporters": {
            "awsemf": {
                "region": fleet.region,
                "namespace": METRICS_NAMESPACE,
                "log_group_name": log_group,
                "log_stream_name": "collector",
                "dimension_rollup_option": "NoDimensionRollup",
                "metric_declarations": [
                    _declaration([FLEET], _OF_GPUS),
                    # The exporter writes the Xid's number as label, too; those that need no action are not a metric.
                    {
                        **_declaration([FLEET], (_XID,)),
                        "label_matchers": [{"label_names": ["err_code"], "regex": f"^({'|'.join(map(str, severe))})$"}],
                    },
                    _declaration([FLEET, SCALE_SET], _OF_SETS),
                ],
            }
        },
        "service": {
            "extensions": ["health_check"],
            "pipelines": {
                "metrics": {
                    "receivers": ["prometheus"],
                    "processors": ["memory_limiter", "batch"],
                    "exporters": ["awsemf"],
                }
            },
        },
    }


def _declaration(dimensions: list[str], metrics: tuple[str, ...]) -> dict[str, Any]:
    return {"dimensions": [dimensions], "metric_name_selectors": [f"^{metric}$" for metric in metrics]}


def dashboard(fleet: Fleet) -> dict[str, Any]:
    """Return the body of the dashboard: GPUs of the fleet, and jobs by scale set."""
    sets = [runner.scale_set for runner in fleet.runners.values()]
    graphs = [
        ("GPU utilisation, %", [_line(fleet, "DCGM_FI_DEV_GPU_UTIL", stat=stat) for stat in ("Average", "Maximum")]),
        ("Hottest GPU, °C", [_line(fleet, "DCGM_FI_DEV_GPU_TEMP", stat="Maximum")]),
        ("Power of a GPU, W", [_line(fleet, "DCGM_FI_DEV_POWER_USAGE", stat="Average")]),
        ("Xids that need a person", [_line(fleet, _XID, stat="SampleCount")]),
        ("Jobs assigned", [_line(fleet, "gha_assigned_jobs", name) for name in sets]),
        ("Jobs running", [_line(fleet, "gha_running_jobs", name) for name in sets]),
        ("Runners without a job", [_line(fleet, "gha_idle_runners", name) for name in sets]),
        ("Failed runners", [_line(fleet, "gha_controller_failed_ephemeral_runners", name) for name in sets]),
    ]
    widgets = [
        {
            "type": "metric",
            "x": 12 * (index % 2),
            "y": 6 * (index // 2),
            "width": 12,
            "height": 6,
            "properties": {"title": title, "region": fleet.region, "period": 60, "metrics": lines},
        }
        for index, (title, lines) in enumerate(graph for graph in graphs if graph[1])
    ]
    return {"widgets": widgets}


def _line(fleet: Fleet, metric: str, scale_set: str = "", stat: str = "Maximum") -> list[Any]:
    of_set = [SCALE_SET, scale_set] if scale_set else []
    return [METRICS_NAMESPACE, metric, FLEET, fleet.name, *of_set, {"stat": stat}]
