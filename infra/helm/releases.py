"""Helm releases of upstream charts: real ones, so hooks run and `helm list` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import Component
from infra.helm.charts import CRD, Chart
from paddock.fleet import Mirror
from paddock.fleet.model.shared_cluster import OfCrds

_NO_CLUSTER = json.dumps({"apiVersion": "v1", "kind": "Config"})


def release(
    owner: Component,
    name: str,
    chart: Chart,
    mirror: Mirror,
    *,
    namespace: pulumi.Input[str],
    values: Mapping[str, Any],
    release_name: str | None = None,
    depends_on: Iterable[pulumi.Resource] = (),
    crds: OfCrds = "replace",
    **options: Any,
) -> k8s.helm.v3.Release:
    """A release that is rolled back when it does not come up within ten minutes, after the CRDs of its chart.

    `crds`: `share` takes nothing that another manager has set otherwise, `keep` leaves them all alone.
    """
    location, repository = chart.location(mirror)
    needs = list(depends_on)
    if chart.crds and crds != "keep":
        needs += _crds(owner, name, chart, mirror, needs, crds)
    return k8s.helm.v3.Release(
        name,
        name=release_name or chart.name,
        chart=location,
        version=chart.version,
        repository_opts={"repo": repository} if repository else None,
        namespace=namespace,
        values=chart.mirrored(values, mirror),
        skip_crds=True if chart.crds else None,
        atomic=True,
        timeout=600,
        opts=owner.child(depends_on=needs, **options),
    )


def _crds(
    owner: Component, name: str, chart: Chart, mirror: Mirror, needs: list[pulumi.Resource], crds: OfCrds
) -> Iterator[pulumi.Resource]:
    """The chart's CRDs, which Helm would install once and never upgrade."""
    # A provider that knows no cluster renders the chart in the first preview, too, and everywhere alike.
    renderer = k8s.Provider(f"{name}-charts", kubeconfig=_NO_CLUSTER, opts=owner.child())
    specs = pulumi.runtime.invoke_output(
        "kubernetes:helm:template",
        {"jsonOpts": json.dumps(chart.template(mirror), sort_keys=True)},
        pulumi.InvokeOutputOptions(provider=renderer),
    ).apply(lambda answer: _specs(chart, answer["result"]))
    for crd in chart.crds:
        # A patch makes what is absent, and forced it takes over what a chart or another stack has installed.
        yield k8s.apiextensions.CustomResourcePatch(
            f"{name}-{crd}",
            api_version="apiextensions.k8s.io/v1",
            kind=CRD,
            metadata={"name": crd, **({"annotations": {"pulumi.com/patchForce": "true"}} if crds == "replace" else {})},
            spec=specs[crd],
            # Kubernetes deletes all objects of a kind with its CRD; Helm, too, leaves it when a release goes.
            opts=owner.child(depends_on=needs, retain_on_delete=True),
        )


def _specs(chart: Chart, objects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Specs of the CRDs among a chart's objects, by name. Raises RunError where they are others than `chart.crds`."""
    specs = {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == CRD}
    if set(specs) != set(chart.crds):
        raise pulumi.RunError(
            f"the chart {chart.name} {chart.version} has the CRDs {', '.join(sorted(specs)) or 'none'}\n"
            f"    expected: {', '.join(chart.crds)}\n"
            f"    fix: list those of this version as `crds` of {chart.name} in infra/helm/charts.py"
        )
    return specs
