"""Helm releases of upstream charts: real ones, so hooks run and `helm list` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import Chart
from infra.component import Component
from paddock.fleet import Mirror


def release(
    owner: Component,
    name: str,
    chart: Chart,
    mirror: Mirror,
    *,
    namespace: pulumi.Input[str],
    values: Mapping[str, Any],
    release_name: str | None = None,
    **options: Any,
) -> k8s.helm.v3.Release:
    """A release that is rolled back when it does not come up within ten minutes."""
    location, repository = chart.location(mirror)
    return k8s.helm.v3.Release(
        name,
        name=release_name or name,
        chart=location,
        version=chart.version,
        repository_opts={"repo": repository} if repository else None,
        namespace=namespace,
        values=chart.mirrored(values, mirror),
        atomic=True,
        timeout=600,
        opts=owner.child(**options),
    )
