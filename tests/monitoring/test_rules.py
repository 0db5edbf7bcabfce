"""Every rule, judged by Prometheus' own tool: series on which it fires, and series on which it stays quiet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from infra import versions
from paddock.catalog.xids import xids
from paddock.fleet import FleetError
from paddock.fleet.model.shared_cluster import Arc
from paddock.monitoring.alerts import _LISTENERS, every_kind, groups, refused_from, xid_codes
from paddock.monitoring.rules import Alert, Recording, document
from paddock.runbooks import runbooks
from tests.support import promql
from tests.support.exported_metrics import exported
from tests.support.fleets import fleet_data, stack
from tests.support.promtool import PROMTOOL, firing, objections

RUNNER = "2.337.0"
"""A version with a successor in the catalogue."""
FLEET = stack(
    fleet_data(
        pools={
            "t4": {"instances": ["g4dn.xlarge"], "nodes": {"min": 1, "max": 2}},
            "h100": {
                "instances": ["p5.48xlarge"],
                "capacity": {"capacityBlock": "cr-0123456789abcdef0", "ends": "2026-12-01T11:30Z"},
                "nodes": {"max": 1},
            },
        },
        runners={"gpu": {"pool": "t4"}, "big": {"pool": "h100", "gpus": 8}},
    )
).fleet
GROUPS = groups(FLEET, RUNNER)
ALERTS = [alert for group in GROUPS for alert in group.alerts]
RULES = document(GROUPS)


@dataclass(frozen=True)
class Case:
    """Series over time, and the labels of the alerts that fire `at` the end."""

    alert: str
    series: Mapping[str, str]
    fires: list[dict[str, str]] = field(default_factory=list)
    at: str = "40m"

    def __str__(self) -> str:
        return f"{self.alert}-{'fires' if self.fires else 'quiet'}"


def dcgm(metric: str, gpu: str = "0", host: str = "a") -> str:
    return f'{metric}{{gpu="{gpu}", UUID="GPU-{gpu}", modelName="T4", Hostname="{host}"}}'


def gpu(number: str = "0", host: str = "a", **more: str) -> dict[str, str]:
    return {"gpu": number, "UUID": f"GPU-{number}", "modelName": "T4", "Hostname": host, **more}


def node(metric: str, name: str = "a", resource: str = "nvidia_com_gpu") -> str:
    return f'{metric}{{node="{name}", resource="{resource}", unit="integer"}}'


def of_node(name: str = "a") -> dict[str, str]:
    return {"node": name, "resource": "nvidia_com_gpu", "unit": "integer"}


def of_type(name: str, pool: str = "h100", kind: str = "p5.48xlarge") -> str:
    labels = f'label_paddock_dev_pool="{pool}", label_node_kubernetes_io_instance_type="{kind}"'
    return f'kube_node_labels{{node="{name}", {labels}}}'


def taint(name: str, key: str = "nvidia.com/gpu") -> str:
    return f'kube_node_spec_taint{{node="{name}", key="{key}", value="true", effect="NoSchedule"}}'


def scale_set(metric: str, name: str = "gpu") -> str:
    return f'{metric}{{name="{name}", namespace="arc-runners", organization="acme"}}'


def of_set(name: str = "gpu") -> dict[str, str]:
    return {"name": name, "namespace": "arc-runners", "organization": "acme"}


def pod(metric: str, name: str, namespace: str = "arc-runners", **more: str) -> str:
    labels = {"namespace": namespace, "pod": name, "uid": f"uid-{name}", **more}
    return metric + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def gpu_request(name: str, on: str = "") -> str:
    return pod("kube_pod_container_resource_requests", name, resource="nvidia_com_gpu", node=on, container="runner")


def phase(name: str, value: str) -> str:
    return pod("kube_pod_status_phase", name, phase=value)


def startup(le: str, repository: str = "app") -> str:
    return f'gha_job_startup_duration_seconds_bucket{{le="{le}", repository="{repository}"}}'


STARTED = 'gha_job_startup_duration_seconds_count{repository="app"}'
LISTENER = {"namespace": "arc-systems", "pod": "gpu-754b578d-listener"}


def listener(metric: str, uid: str = "1", **more: str) -> str:
    labels = {**LISTENER, "uid": uid, **more}
    return metric + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def runner(uid: int, name: str = "gpu-abc12-runner-x1") -> str:
    return f'kube_pod_created{{namespace="arc-runners", pod="{name}", uid="{uid}"}}'


TEMPERATURE, CAPACITY = "DCGM_FI_DEV_GPU_TEMP", "kube_node_status_capacity"
ALLOCATABLE, XID = "kube_node_status_allocatable", "DCGM_FI_DEV_XID_ERRORS"
RESTARTS = "kube_pod_container_status_restarts_total"

CASES = [
    Case(
        "GpuLost",
        {dcgm(TEMPERATURE): "50x60", dcgm(TEMPERATURE, "1"): "50x20 stale"},
        [{"Hostname": "a", "modelName": "T4"}],
    ),
    # A node that goes takes all of its GPUs along; a GPU's MIG devices are one GPU.
    Case(
        "GpuLost",
        {
            dcgm(TEMPERATURE, host="gone"): "50x20 stale",
            'DCGM_FI_DEV_GPU_TEMP{gpu="0", modelName="A100", Hostname="b", GPU_I_ID="1"}': "50x60",
            'DCGM_FI_DEV_GPU_TEMP{gpu="0", modelName="A100", Hostname="b", GPU_I_ID="2"}': "50x20 stale",
        },
    ),
    Case(
        "GpuUncorrectableEccError",
        {
            dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "0x36 1x20",
            dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "1"): "3x60",
        },
        [gpu()],
    ),
    Case("GpuUncorrectableEccError", {dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "2x60"}),
    Case("GpuRowRemapFailure", {dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "0x20 1x40"}, [gpu()]),
    Case("GpuRowRemapFailure", {dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "0x60"}),
    # One names its limit, one its margin, one neither.
    Case(
        "GpuTooHot",
        {
            dcgm(TEMPERATURE): "94x60",
            dcgm("DCGM_FI_DEV_SLOWDOWN_TEMP"): "96x60",
            dcgm(TEMPERATURE, "1"): "70x60",
            dcgm("DCGM_FI_DEV_GPU_TEMP_LIMIT", "1"): "2x60",
            dcgm(TEMPERATURE, "2"): "91x60",
        },
        [gpu(), gpu("1"), gpu("2")],
    ),
    Case(
        "GpuTooHot",
        {
            dcgm(TEMPERATURE): "91x60",
            dcgm("DCGM_FI_DEV_SLOWDOWN_TEMP"): "96x60",
            dcgm(TEMPERATURE, "1"): "91x60",
            dcgm("DCGM_FI_DEV_GPU_TEMP_LIMIT", "1"): "9x60",
            dcgm(TEMPERATURE, "2"): "80x60",
            dcgm("DCGM_FI_DEV_SLOWDOWN_TEMP", "2"): "0x60",
        },
    ),
    Case("GpuMetricsMissing", {node(CAPACITY): "1x60", node(CAPACITY, "b"): "1x60", dcgm(TEMPERATURE): "50x60"},
         [of_node("b")]),
    Case("GpuMetricsMissing", {node(CAPACITY): "1x60", node(CAPACITY, "c"): "0x60", dcgm(TEMPERATURE): "50x60"}),
    Case("GpuNotAllocatable", {node(CAPACITY): "4x60", node(ALLOCATABLE): "3x60"}, [{"node": "a"}]),
    Case("GpuNotAllocatable", {node(CAPACITY): "4x60", node(ALLOCATABLE): "4x60",
                               node(CAPACITY, "b", "cpu"): "8x60", node(ALLOCATABLE, "b", "cpu"): "7x60"}),
    Case(
        "GpuNodeWithoutGpus",
        {
            taint("a"): "1x60", node(CAPACITY): "0x60",
            taint("b"): "1x60",
            taint("c"): "1x60", node(CAPACITY, "c"): "1x60",
        },
        [{"node": name, "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"} for name in ("a", "b")],
    ),
    Case("GpuNodeWithoutGpus", {taint("a"): "1x60", node(CAPACITY): "4x60", taint("b", "dedicated"): "1x60"}),
    Case(
        "GpuMissing",
        {node(CAPACITY): "7x60", of_type("a"): "1x60", node(CAPACITY, "b"): "8x60", of_type("b"): "1x60"},
        [of_node("a")],
    ),
    # A node without any is another alert's, and a type of one GPU has no fewer.
    Case(
        "GpuMissing",
        {
            node(CAPACITY): "0x60", of_type("a"): "1x60",
            node(CAPACITY, "b"): "1x60", of_type("b", "t4", "g4dn.xlarge"): "1x60",
        },
    ),
    Case("NodeMetricsMissing", {node(CAPACITY): "1x60"}, [{"resource": "cpu"}]),
    Case("NodeMetricsMissing", {node(CAPACITY, "a", "cpu"): "4x60"}),
    # The first Xid of a GPU makes its series; it stands as long as nothing replaces it.
    Case("GpuXidReset", {dcgm(XID): "_x20 48x90", dcgm(XID, "1"): "31x110"}, [gpu(xid="48")], at="100m"),
    Case("GpuXidReset", {dcgm(XID): "0x60", dcgm(XID, "1"): "79x60"}),
    Case("GpuXidReboot", {dcgm(XID): "0x20 79x40"}, [gpu(xid="79")]),
    Case("GpuXidReboot", {dcgm(XID): "13x60"}),
    Case("GpuXidReplace", {dcgm(XID): "0x20 58x40"}, [gpu(xid="58")]),
    Case("GpuXidReplace", {dcgm(XID): "79x60"}),
    Case("GpuXidDriver", {dcgm(XID): "0x20 154x40"}, [gpu(xid="154")]),
    Case("GpuXidDriver", {dcgm(XID): "48x60"}),
    Case("GpuXidJob", {dcgm(XID): "0x20 31x40"}, [gpu(xid="31")]),
    Case("GpuXidJob", {dcgm(XID): "0x5 31x90", dcgm(XID, "1"): "63x90"}),
    Case("GpuXidUnknown", {dcgm(XID): "0x20 999x40"}, [gpu(xid="999")]),
    Case("GpuXidUnknown", {dcgm(XID): "0x20 31x40", dcgm(XID, "1"): "0x20 63x40"}),
    Case(
        "GpuJobsWaiting",
        {scale_set("gha_assigned_jobs"): "3x60", scale_set("gha_running_jobs"): "1x60",
         scale_set("gha_max_runners"): "4x60"},
        [of_set()],
    ),
    Case(
        "GpuJobsWaiting",
        {
            scale_set("gha_assigned_jobs"): "9x60",
            scale_set("gha_running_jobs"): "4x60",
            scale_set("gha_max_runners"): "4x60",
            scale_set("gha_assigned_jobs", "other"): "2x60",
            scale_set("gha_running_jobs", "other"): "2x60",
            scale_set("gha_max_runners", "other"): "4x60",
        },
    ),
    Case(
        "QueueSlow",
        {startup("600"): "0x120", startup("1800"): "0+1x120", startup("+Inf"): "0+1x120", STARTED: "0+1x120"},
        [{"repository": "app"}],
        at="90m",
    ),
    Case(
        "QueueSlow",
        {startup("600"): "0+1x120", startup("1800"): "0+1x120", startup("+Inf"): "0+1x120", STARTED: "0+1x120"},
        at="90m",
    ),
    # Series that begin in the hour: workflows that ran for the first time, each with one value and no growth.
    Case(
        "QueueSlow",
        {
            line.replace("repository", f'job_workflow_name="{number}", repository'): values
            for number in range(20)
            for line, values in (
                (startup("600"), "_x40 0x60"), (startup("2400"), "_x40 1x60"), (startup("+Inf"), "_x40 1x60"),
                (STARTED, "_x40 1x60"),
            )
        },
        [{"repository": "app"}],
        at="80m",
    ),
    # Two jobs in an hour say nothing about one in twenty.
    Case(
        "QueueSlow",
        {startup("600"): "0x120", startup("1800"): "0x40 2x80", startup("+Inf"): "0x40 2x80", STARTED: "0x40 2x80"},
        at="90m",
    ),
    Case(
        "GpuPodsPending",
        {gpu_request("p"): "1x60", phase("p", "Pending"): "1x60", pod("kube_pod_created", "p"): "600x60"},
        [{"namespace": "arc-runners"}],
    ),
    # Another runs, one is young, one has no GPU.
    Case(
        "GpuPodsPending",
        {
            gpu_request("r"): "1x60", phase("r", "Pending"): "0x60", phase("r", "Running"): "1x60",
            pod("kube_pod_created", "r"): "0x60",
            gpu_request("y"): "1x60", phase("y", "Pending"): "1x60", pod("kube_pod_created", "y"): "1300x60",
            phase("c", "Pending"): "1x60", pod("kube_pod_created", "c"): "0x60",
        },
    ),
    Case("ScaleSetFailing", {scale_set("gha_controller_failed_ephemeral_runners"): "0x10 2x50"}, [of_set()]),
    Case("ScaleSetFailing", {scale_set("gha_controller_failed_ephemeral_runners"): "0x60"}),
    Case(
        "RunnerRestarting",
        {runner(n): f"_x{15 + 8 * n} {n}x2 stale" for n in range(3)},
        [{"namespace": "arc-runners", "pod": "gpu-abc12-runner-x1"}],
    ),
    # Two tries, and a runner after another.
    Case(
        "RunnerRestarting",
        {
            **{runner(n): f"_x{15 + 8 * n} {n}x2 stale" for n in range(2)},
            **{runner(n, f"gpu-abc12-runner-y{n}"): f"_x{15 + 4 * n} {n}x2 stale" for n in range(5)},
        },
    ),
    Case("ListenerRestarting", {listener(RESTARTS, container="listener"): "0x25 1+1x40"}, [LISTENER]),
    Case(
        "ListenerRestarting",
        {listener("kube_pod_created", str(n)): f"_x{26 + 3 * n} {n}x2 stale" for n in range(5)},
        [LISTENER],
    ),
    Case(
        "ListenerRestarting",
        {
            listener(RESTARTS, container="listener"): "0x30 1x30",
            listener("kube_pod_created"): "5x30 stale",
            listener("kube_pod_created", "2"): "_x31 1800x30",
            pod(RESTARTS, "job", container="runner"): "0+1x60",
        },
    ),
    Case("ListenerAbsent", {scale_set("gha_assigned_jobs"): "0x60"}, [{"name": "big"}]),
    Case("ListenerAbsent", {scale_set("gha_assigned_jobs"): "0x60", scale_set("gha_assigned_jobs", "big"): "0x60"}),
    Case(
        "GpuIdle",
        {gpu_request("p", "a"): "1x90", phase("p", "Running"): "1x90", dcgm("DCGM_FI_DEV_GPU_UTIL"): "0x90"},
        [{"node": "a"}],
        at="80m",
    ),
    # A pod that has just come, one that works now and then, and a GPU that nobody holds.
    Case(
        "GpuIdle",
        {
            gpu_request("p", "a"): "_x40 1x90", phase("p", "Running"): "_x40 1x90",
            dcgm("DCGM_FI_DEV_GPU_UTIL"): "0x90",
            gpu_request("q", "b"): "1x90", phase("q", "Running"): "1x90",
            dcgm("DCGM_FI_DEV_GPU_UTIL", host="b"): "0x50 90 0x40",
            dcgm("DCGM_FI_DEV_GPU_UTIL", host="c"): "0x90",
        },
        at="80m",
    ),
    Case("GpuNodesUnused", {node(ALLOCATABLE): "1x90", node(ALLOCATABLE, "b"): "8x90"}, [{}], at="80m"),
    # The pools keep one node; the other has a pod.
    Case(
        "GpuNodesUnused",
        {
            node(ALLOCATABLE): "1x90", node(ALLOCATABLE, "b"): "8x90",
            gpu_request("p", "b"): "8x90", phase("p", "Running"): "1x90",
        },
        at="80m",
    ),
]  # fmt: skip


def rules_of(*names: str) -> dict[str, Any]:
    """Return the rules of these alerts, with all recordings: promtool evaluates each rule each minute."""
    selected = {None, *names}
    rules = {
        group["name"]: [rule for rule in group["rules"] if rule.get("alert") in selected] for group in RULES["groups"]
    }
    return {"groups": [{"name": name, "rules": rules} for name, rules in rules.items() if rules]}


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule_fires_when_it_should_and_only_then(case: Case) -> None:
    assert firing(rules_of(case.alert), case.series, (case.alert, case.at, case.fires)) == ""


START = datetime(2026, 10, 1, tzinfo=UTC)
"""The day on which promtool's clock begins, which else is in 1970: 20,000 evaluations earlier."""


def since_start(day: datetime) -> str:
    return f"{(day - START).days}d"


def begun_at_start(rule: Alert) -> dict[str, Any]:
    assert rule.expression.count("time()") == 1
    shifted = rule.expression.replace("time()", f"time() + {START.timestamp():.0f}")
    return {**rule.prometheus(), "expr": shifted}


VERSION, POOL = {"version": RUNNER}, {"pool": "h100"}
BY_DATE: list[tuple[str, datetime, datetime, dict[str, str]]] = [
    # 2.338.0 of 2026-10-06 follows it: refused from 2026-11-05 on.
    ("RunnerVersionOld", datetime(2026, 10, 26, tzinfo=UTC), datetime(2026, 10, 29, tzinfo=UTC), VERSION),
    ("RunnerVersionRefused", datetime(2026, 11, 4, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC), VERSION),
    ("CapacityBlockEnding", datetime(2026, 11, 29, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC), POOL),
]


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
def test_rules_about_a_date_fire_by_the_clock() -> None:
    checks = [
        check
        for alert, before, after, labels in BY_DATE
        for check in ((alert, since_start(before), []), (alert, since_start(after), [labels]))
    ]
    rules = [begun_at_start(rule) for rule in ALERTS if rule.name in {alert for alert, *_ in BY_DATE}]
    assert firing({"groups": [{"name": "dates", "rules": rules}]}, {}, *checks, interval="1d") == ""


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    by_date = {alert for alert, *_ in BY_DATE}
    names = {alert.name for alert in ALERTS} - by_date
    assert {case.alert for case in CASES if case.fires} == names
    assert {case.alert for case in CASES if not case.fires} == names


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
def test_promtool_has_nothing_against_the_rules() -> None:
    assert objections(RULES) == ""


RULES_BY_NAME = {f"{rule.name}-{n}": rule for group in GROUPS for n, rule in enumerate(group.rules)}


@pytest.mark.parametrize("rule", RULES_BY_NAME.values(), ids=RULES_BY_NAME)
def test_rule_reads_metrics_and_labels_that_are_exported(rule: Alert | Recording) -> None:
    known = dict(exported())
    for group in GROUPS:
        for recording in group.rules:
            if isinstance(recording, Recording):
                sources = (known[name] for name in promql.metrics(recording.expression))
                known[recording.name] = frozenset({"xid"}.union(*sources))
    used = promql.metrics(rule.expression)
    assert used <= set(known)
    made = set(re.findall(r'label_replace\(.*?, "(\w+)", ', rule.expression))
    available = made.union(*(known[name] for name in used))
    assert promql.labels(rule.expression) <= available
    if isinstance(rule, Alert):
        assert set(re.findall(r"\$labels\.(\w+)", rule.summary)) <= available


def test_names_are_separated_from_the_rest_of_an_expression() -> None:
    expression = (
        'sum by (a) (rate(x_total{b="c"}[5m])) > 0 unless on(d) label_replace(y offset 30m, "d", "$1", "e", "")'
    )
    assert promql.metrics(expression) == {"x_total", "y"}
    assert promql.labels(expression) == {"a", "b", "d"}


def test_every_alert_has_a_runbook() -> None:
    of_alerts = {book.id for book in runbooks().values() if not book.link}
    assert of_alerts == {alert.name for alert in ALERTS} == {alert.name for alert in every_kind()}
    assert all(runbooks()[name].check for name in of_alerts)


def test_every_xid_of_the_catalogue_has_one_response() -> None:
    listed = [code for numbers in xid_codes().values() for code in numbers]
    assert sorted(listed) == sorted(xids())
    assert set(xid_codes()) == {"restart-app", "ignore", "reset", "replace", "reboot", "driver"}


def test_listeners_are_selected_where_they_run() -> None:
    assert f"{Arc().systems}.*" in _LISTENERS


def test_a_runner_that_nobody_followed_counts_from_the_last_reading() -> None:
    assert refused_from("2.338.0") == datetime(2026, 11, 9, tzinfo=UTC)
    assert refused_from("9.9.9") is None


def test_rules_name_the_runner_of_each_image() -> None:
    image = "registry.example.com/gpu:cuda12.8-runner2.336.0-0123456789ab"
    fleet = stack(fleet_data(runners={"own": {"pool": "t4", "image": image}, "gpu": {"pool": "t4"}})).fleet
    found = [alert for group in groups(fleet, versions.ACTIONS_RUNNER) for alert in group.alerts]
    old = [alert.expression for alert in found if alert.name == "RunnerVersionOld"]
    assert [re.search(r'"version", "([\d.]+)"', text)[1] for text in old] == ["2.336.0", versions.ACTIONS_RUNNER]  # type: ignore[index]


@pytest.mark.parametrize("ends", ["tomorrow", "2026-12-01", "2026-12-01T11:30+02:00", "2026-13-01T11:30Z"])
def test_end_of_a_capacity_block_is_a_time_in_utc(ends: str) -> None:
    block = {"capacityBlock": "cr-0123456789abcdef0", "ends": ends}
    pools = {"h100": {"instances": ["p5.48xlarge"], "capacity": block, "nodes": {"max": 1}}}
    with pytest.raises(FleetError, match=r"UTC\n    expected: one .*, such as 2026-12-01T11:30Z"):
        stack(fleet_data(pools=pools, runners={}))
