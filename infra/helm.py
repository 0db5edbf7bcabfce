"""Helm releases of upstream charts: real ones, so hooks run and `helm list` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import Component


@dataclass(frozen=True, slots=True)
class Chart:
    """Where a chart is. `name` is an oci:// address, or a name in `repository`."""

    name: str
    version: str
    repository: str | None = None


def release(
    owner: Component,
    name: str,
    chart: Chart,
    *,
    namespace: pulumi.Input[str],
    values: Mapping[str, Any],
    release_name: str | None = None,
    **options: Any,
) -> k8s.helm.v3.Release:
    """A release that is rolled back when it does not come up within ten minutes."""
    return k8s.helm.v3.Release(
        name,
        name=release_name or name,
        chart=chart.name,
        version=chart.version,
        repository_opts={"repo": chart.repository} if chart.repository else None,
        namespace=namespace,
        values=dict(values),
        atomic=True,
        timeout=600,
        opts=owner.child(**options),
    )
