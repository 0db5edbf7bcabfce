"""Helm releases of upstream charts: real ones, so hooks run and `helm list` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import Component
from paddock.fleet import Mirror
from paddock.fleet.mirror import ChartName, is_folder


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and where its makers keep it: `source` is its own oci:// address, or an https:// repository."""

    name: ChartName
    version: str
    source: str

    def found(self, mirror: Mirror) -> tuple[str, str | None]:
        """What Helm is asked for: a chart, and the repository where that is a name in one."""
        source = mirror.chart(self.name, self.version) or self.source
        if source.startswith("https://"):
            return self.name, source
        if is_folder(source):
            # The engine runs providers in the program's folder, which is one below the stack file's.
            return str(PurePosixPath("..") / source), None
        return source, None


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
    found, repository = chart.found(mirror)
    return k8s.helm.v3.Release(
        name,
        name=release_name or name,
        chart=found,
        version=chart.version,
        repository_opts={"repo": repository} if repository else None,
        namespace=namespace,
        values=dict(values),
        atomic=True,
        timeout=600,
        opts=owner.child(**options),
    )
