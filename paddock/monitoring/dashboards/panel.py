"""A dashboard as data, apart from Grafana's own model of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WIDTH = 24
"""Columns of a dashboard, of which a panel takes some."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of PromQL. `legend` names its series and may hold labels, as {{label}}."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A number or a graph. `unit` is Grafana's name of a unit."""

    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str = "short"
    kind: Literal["number", "graph"] = "graph"
    columns: int = 12


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels. `uid` is its address in Grafana, and never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
