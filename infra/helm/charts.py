"""The charts that the program installs: where their makers keep them, and which images they pull."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from infra import versions
from infra.manifests import manifest
from paddock.fleet import Fleet, Mirror
from paddock.fleet.model.mirror import ChartName, is_folder


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a chart names in its values."""

    repository: str
    tag: str = ""
    """Empty where our values always give one."""
    at: tuple[str, ...] = ("image",)
    """Keys of the values under which the chart takes another `repository` and `tag`."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and where its makers keep it: `source` is its own oci:// address, or an https:// repository."""

    name: ChartName
    version: str
    source: str
    images: tuple[Image, ...] = ()
    """None where all images are written in our values."""
    crds: tuple[str, ...] = ()
    """Names of the CRDs in its `crds` folder, and in those of the charts inside it."""
    crd_values: Mapping[str, Any] = field(default_factory=dict)
    """Of our values, those without which a chart inside it is left out with its CRDs."""

    @property
    def pull(self) -> str:
        """The command that fetches it from its makers."""
        source = self.source if self.source.startswith("oci://") else f"{self.name} --repo {self.source}"
        return f"helm pull {source} --version {self.version}"

    def location(self, mirror: Mirror) -> tuple[str, str | None]:
        """Return what Helm takes: a chart, and the repository where that is a name in one."""
        source = mirror.chart(self.name, self.version) or self.source
        if source.startswith("https://"):
            return self.name, source
        if is_folder(source):
            # The engine runs providers in the program's folder, which is one below the stack file's.
            return str(PurePosixPath("..") / source), None
        return source, None

    def template(self, mirror: Mirror) -> dict[str, Any]:
        """Options of `helm template` for its CRDs, as Pulumi's function of that name takes them."""
        location, repository = self.location(mirror)
        options = {"release_name": self.name, "values": self.crd_values}
        if is_folder(location) and not repository:
            return {**options, "path": location}
        fetch = {"fetch_opts": {"repo": repository}} if repository else {}
        return {**options, "chart": location, "version": self.version, **fetch}

    def mirrored(self, values: Mapping[str, Any], mirror: Mirror) -> dict[str, Any]:
        """The values with the images that the chart names by itself taken from the mirror."""
        merged = dict(values)
        for image in self.images:
            repository = mirror.image(image.repository)
            if repository != image.repository:
                # With its tag: what is in the mirror is what was listed, whatever the chart's default becomes.
                tag = {"tag": image.tag} if image.tag else {}
                merged = _with(merged, image.at, {"repository": repository, **tag})
        return merged


def _with(values: Mapping[str, Any], at: tuple[str, ...], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values with settings under a path of keys; what is given there already stays."""
    inner = values.get(at[0], {})
    return {**values, at[0]: _with(inner, at[1:], settings) if at[1:] else {**settings, **inner}}


CRD = "CustomResourceDefinition"


def _charts() -> Iterator[Chart]:
    rows = manifest(
        "charts",
        autoscaler=versions.CLUSTER_AUTOSCALER_CHART,
        device_plugin=versions.NVIDIA_DEVICE_PLUGIN,
        nfd=versions.NODE_FEATURE_DISCOVERY,
        dcgm=versions.DCGM_EXPORTER,
        dcgm_image=versions.DCGM_EXPORTER_IMAGE,
        arc=versions.ARC,
        kuberay=versions.KUBERAY,
    )
    for row in rows:
        images = tuple(Image(**{**image, "at": tuple(image.get("at", ("image",)))}) for image in row.get("images", ()))
        yield Chart(**{**row, "images": images, "crds": tuple(row.get("crds", ()))})


AUTOSCALER, DEVICE_PLUGIN, DCGM_EXPORTER, CONTROLLER, SCALE_SET, KUBERAY = _charts()
CHARTS: Mapping[str, Chart] = {
    chart.name: chart for chart in (AUTOSCALER, DEVICE_PLUGIN, DCGM_EXPORTER, CONTROLLER, SCALE_SET, KUBERAY)
}


def installed(fleet: Fleet) -> Iterator[Chart]:
    """The charts that a stack of this fleet installs."""
    if fleet.holds("cluster"):
        if fleet.owns_nodes:
            yield AUTOSCALER
        if fleet.installs_device_plugin:
            yield DEVICE_PLUGIN
        if fleet.monitoring.enabled:
            yield DCGM_EXPORTER
        if fleet.served:
            yield KUBERAY
    if fleet.holds("runners"):
        if not fleet.controller_of_others:
            yield CONTROLLER
        if fleet.runners:
            yield SCALE_SET
