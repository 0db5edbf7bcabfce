"""Metrics in CloudWatch: what is sent, what reads it, and what may be done. AWS's model is asked elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from infra import versions
from paddock.fleet import FleetError
from paddock.monitoring.cloudwatch import METRICS
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from tests.support.exported_metrics import exported
from tests.support.fleets import fleet_data, stack

TOPIC = "arn:aws:sns:us-west-2:123456789012:on-call"
ALARM, DASHBOARD = "aws:cloudwatch/metricAlarm:MetricAlarm", "aws:cloudwatch/dashboard:Dashboard"
FLEET = stack(fleet_data(monitoring={"enabled": True, "cloudwatch": {"days": 14, "topic": TOPIC}}))


@cache
def planned() -> Graph:
    return plan_graph(FLEET)


def collector() -> dict[str, Any]:
    (files,) = (r.inputs["data"] for r in planned().of_type(types.CONFIG_MAP) if r.name == "cloudwatch-configuration")
    configuration: dict[str, Any] = yaml.safe_load(files["config.yaml"])
    return configuration


def test_every_metric_that_is_sent_is_exported() -> None:
    assert set(METRICS) <= set(exported())


def test_alarms_and_dashboard_read_what_is_sent_by_its_dimensions() -> None:
    declared = {
        (re.sub(r"[$^]", "", selector), tuple(dimensions))
        for declaration in collector()["exporters"]["awsemf"]["metric_declarations"]
        for dimensions in declaration["dimensions"]
        for selector in declaration["metric_name_selectors"]
    }
    read = {
        (query["metric"]["metricName"], tuple(query["metric"]["dimensions"]))
        for alarm in planned().of_type(ALARM)
        for query in alarm.inputs["metricQueries"]
        if "metric" in query
    }
    (dashboard,) = planned().of_type(DASHBOARD)
    for widget in json.loads(dashboard.inputs["dashboardBody"])["widgets"]:
        for _, metric, *rest in widget["properties"]["metrics"]:
            read.add((metric, tuple(rest[:-1:2])))
    assert read <= declared


def test_only_named_metrics_leave_the_cluster() -> None:
    for job in collector()["receivers"]["prometheus"]["config"]["scrape_configs"]:
        keep, name = job["metric_relabel_configs"]
        assert keep["regex"].split("|") == list(METRICS)
        assert name == {"target_label": "fleet", "replacement": "paddock-sample"}


def test_alarms_go_to_the_topic() -> None:
    assert all(alarm.inputs["alarmActions"] == [TOPIC] for alarm in planned().of_type(ALARM))


def statements() -> Iterator[dict[str, Any]]:
    for resource in planned().of_type("aws:iam/rolePolicy:RolePolicy"):
        if resource.name.startswith("cloudwatch"):
            yield from json.loads(resource.inputs["policy"])["Statement"]


def test_the_collector_may_write_into_its_log_group_alone() -> None:
    (statement,) = statements()
    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"].endswith(":log-group:/paddock/paddock-sample/metrics:*")


def test_the_log_group_is_encrypted_and_ends() -> None:
    (group,) = (r.inputs for r in planned().of_type(types.LOG_GROUP) if r.name == "cloudwatch")
    assert group["retentionInDays"] == 14
    assert group["kmsKeyId"]


def test_the_pod_is_pinned_and_nobody_calls_it() -> None:
    (deployment,) = (r.inputs for r in planned().of_type(types.DEPLOYMENT) if r.name == "cloudwatch")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].endswith(f"@{versions.OPENTELEMETRY_COLLECTOR_DIGEST}")
    assert pod["securityContext"]["runAsNonRoot"]
    (policy,) = (r.inputs for r in planned().of_type(types.NETWORK_POLICY) if r.name == "cloudwatch-default")
    assert policy["spec"].get("ingress") is None
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(("parts", "said"), [
    ({"monitoring": {"cloudwatch": {}}}, "monitoring is not enabled"),
    ({"monitoring": {"enabled": True, "cloudwatch": {"topic": "on-call"}}}, "arn:aws:sns:REGION:ACCOUNT:NAME"),
    ({"monitoring": {"enabled": True, "cloudwatch": {}}, "cluster": {"kubeconfig": "~/.kube/config", "context": "lab"}},
     "remove cloudwatch, and use prometheus"),
])  # fmt: skip
def test_settings_that_cannot_be_are_explained(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(FleetError) as caught:
        stack(fleet_data(**parts))
    assert said in str(caught.value)
