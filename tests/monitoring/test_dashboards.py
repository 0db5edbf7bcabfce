"""Dashboards: what they query is exported, Prometheus parses it, and Grafana loads them where it is installed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import versions
from paddock.monitoring.alerts import groups
from paddock.monitoring.dashboards.grafana import DASHBOARDS, LABEL, files
from paddock.monitoring.dashboards.panel import WIDTH, Dashboard, Query
from paddock.monitoring.rules import Recording
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.program import plan_graph
from tests.support import promql
from tests.support.exported_metrics import exported
from tests.support.fleets import fleet_data, named, stack
from tests.support.promtool import PROMTOOL, objections
from tests.support.waiting import until

GRAFANA = shutil.which("grafana")
HOME = Path("/usr/share/grafana")


def queries(dashboard: Dashboard) -> Iterator[Query]:
    for row in dashboard.rows:
        for panel in row.panels:
            yield from panel.queries


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_panels_query_what_is_exported(dashboard: Dashboard) -> None:
    recorded = {
        rule.name
        for group in groups(named("smallest").fleet, versions.ACTIONS_RUNNER)
        for rule in group.rules
        if isinstance(rule, Recording)
    }
    for query in queries(dashboard):
        assert promql.metrics(query.expression) <= set(exported()) | recorded, query


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
def test_prometheus_parses_every_query() -> None:
    rules = [
        {"record": f"panel:{number}", "expr": query.expression}
        for number, query in enumerate(query for dashboard in DASHBOARDS for query in queries(dashboard))
    ]
    assert objections({"groups": [{"name": "panels", "rules": rules}]}) == ""


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_file_has_every_panel_at_a_place_of_its_own(dashboard: Dashboard) -> None:
    document = json.loads(files()[f"{dashboard.uid}.json"])
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels] == [panel.title for row in dashboard.rows for panel in row.panels]
    assert all(panel["description"] and panel["targets"] for panel in panels)
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= WIDTH
        taken |= cells
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}


def test_each_dashboard_is_a_config_map_that_the_sidecar_loads() -> None:
    graph = plan_graph(stack(fleet_data(monitoring={"enabled": True, "dashboards": True})))
    maps = {
        item.inputs["metadata"]["name"]: item.inputs
        for item in graph.of_type(types.CONFIG_MAP)
        if item.inputs["metadata"].get("labels") == LABEL
    }
    assert set(maps) == {dashboard.uid for dashboard in DASHBOARDS}
    assert all(json.loads(text)["uid"] == name for name, it in maps.items() for text in it["data"].values())


@pytest.mark.skipif(GRAFANA is None or not HOME.is_dir(), reason="no Grafana on this machine")
def test_grafana_loads_every_dashboard(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    settings = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(tmp_path / "data"),
        "GF_PATHS_LOGS": str(tmp_path / "logs"),
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    }
    server = subprocess.Popen(
        [str(GRAFANA), "server", "--homepath", str(HOME)],
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _answers(port), seconds=180)
        for dashboard in DASHBOARDS:
            document = json.loads(files()[f"{dashboard.uid}.json"])
            assert _call(port, "dashboards/db", {"dashboard": document, "overwrite": True})["status"] == "success"
            loaded = _call(port, f"dashboards/uid/{dashboard.uid}")["dashboard"]
            assert [panel["title"] for panel in loaded["panels"]] == [panel["title"] for panel in document["panels"]]
    finally:
        server.terminate()
        server.wait(timeout=60)


def _answers(port: int) -> bool:
    try:
        return bool(_call(port, "health")["database"] == "ok")
    except OSError:
        return False


def _call(port: int, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    initial = base64.b64encode(b"admin:admin").decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/{path}",
        data=json.dumps(body).encode() if body else None,
        headers={"Content-Type": "application/json", "Authorization": f"Basic {initial}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
    return document
