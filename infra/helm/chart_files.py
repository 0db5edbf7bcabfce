"""Charts that a mirror keeps in a folder: whether they are there, before Helm is asked for them."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from infra.helm.charts import installed
from paddock.fleet import Fleet, Problem
from paddock.fleet.errors import Key
from paddock.fleet.model.mirror import ALL, is_folder


def problems(fleet: Fleet, root: Path) -> Iterator[Problem]:
    """Yield the problems of the charts that the fleet takes from folders. `root` is the stack file's folder."""
    for chart in installed(fleet):
        source = fleet.mirror.chart(chart.name, chart.version)
        if source is None or not is_folder(source):
            continue
        path, expected = root / source, f"{chart.name} {chart.version}"
        key: Key = ("paddock:fleet", "mirror", "charts")
        if not isinstance(fleet.mirror.charts, str):
            key = (*key, chart.name if chart.name in fleet.mirror.sources else ALL)
        pull = f"{chart.pull} --destination {Path(source).parent}"
        if not path.is_file():
            others = sorted(archive.name for archive in path.parent.glob(f"{chart.name}-[0-9]*.tgz"))
            message = f"there is no {path.name} in {Path(source).parent}"
            yield Problem(
                key, message + (f", but {', '.join(others)}" if others else ""), f"the chart {expected}", pull
            )
        elif (content := _name_and_version(path)) != expected:
            message = f"{source} holds {content}" if content else f"{source} is not a packed chart"
            yield Problem(key, message, f"the chart {expected}", pull)


def _name_and_version(path: Path) -> str:
    """`NAME VERSION` of a packed chart; empty where it is not one."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            member = next((m for m in archive if m.name.count("/") == 1 and m.name.endswith("/Chart.yaml")), None)
            file = archive.extractfile(member) if member else None
            about = yaml.safe_load(file.read()) if file else None
    except (OSError, tarfile.TarError, EOFError, zlib.error, yaml.YAMLError, UnicodeDecodeError):
        return ""
    return f"{about.get('name')} {about.get('version')}" if isinstance(about, dict) else ""
