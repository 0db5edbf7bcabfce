"""Dashboards as Grafana reads them, through Grafana's own typed builders."""

from __future__ import annotations

import json

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus as prometheus_query
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode

from paddock.monitoring.dashboards import gpus, runners
from paddock.monitoring.dashboards.panel import Dashboard, Panel, Query

LABEL = {"grafana_dashboard": "1"}
"""Label of ConfigMaps that the sidecar of Grafana's chart loads, by its default."""

DASHBOARDS = (gpus.DASHBOARD, runners.DASHBOARD)
_DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT = {"number": 4, "graph": 8}


def files() -> dict[str, str]:
    """Return the dashboards as JSON, by file name."""
    return {f"{dashboard.uid}.json": render(dashboard) for dashboard in DASHBOARDS}


def render(dashboard: Dashboard) -> str:
    """Return the JSON of a dashboard: the same for the same panels."""
    builder = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags(["paddock"])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("1m")
        .readonly()
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for row in dashboard.rows:
        builder = builder.with_row(builders.Row(row.title))
        for panel in row.panels:
            builder = builder.with_panel(_number(panel) if panel.kind == "number" else _graph(panel))
    return json.dumps(builder.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _number(panel: Panel) -> stat.Panel:
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
    number = stat.Panel().title(panel.title).description(panel.description).unit(panel.unit).reduce_options(reduced)
    number = number.datasource(_DATASOURCE).span(panel.columns).height(_HEIGHT[panel.kind])
    for reference, query in zip("ABCDEFGH", panel.queries, strict=False):
        number = number.with_target(_target(query, reference))
    return number


def _graph(panel: Panel) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    graph = timeseries.Panel().title(panel.title).description(panel.description).unit(panel.unit).legend(legend)
    graph = graph.tooltip(tooltip).datasource(_DATASOURCE).span(panel.columns).height(_HEIGHT[panel.kind])
    for reference, query in zip("ABCDEFGH", panel.queries, strict=False):
        graph = graph.with_target(_target(query, reference))
    return graph


def _target(query: Query, reference: str) -> prometheus_query.Dataquery:
    target = prometheus_query.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(reference)
    return target.datasource(_DATASOURCE)
