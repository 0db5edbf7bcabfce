"""The charts of a fleet as files: real ones where available, else small ones of the lab's own.

A chart of our own has the name and version of the real one and takes its values. It keeps them in the ConfigMap
`<release>-values`, and creates what the lab needs: scale sets with the custom resources they need, and workloads that
go where the real ones would. No image in it can be pulled; the lab's nodes are simulated.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paddock import files
from paddock.fleet.model.mirror import chart_name
from paddock.lab.errors import LabInputError

if TYPE_CHECKING:
    from paddock.plan.engine.graph import Graph

REAL = "PADDOCK_LAB_CHARTS"
"""Names the folder of real charts: `<name>-<version>.tgz`, or `<name>/Chart.yaml`."""
_OWN = Path(__file__).parent / "own"
_COMMON = "common"


@dataclass(frozen=True, slots=True)
class Served:
    """One chart that a release can be made of."""

    name: str
    version: str
    path: Path
    real: bool
    """True for the upstream's, False for the lab's own."""


def required_charts(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Return name and version of every chart that a program releases, sorted and without duplicates."""
    releases = set()
    for release in graph.of_type("kubernetes:helm.sh/v3:Release"):
        releases.add((chart_name(release.inputs["chart"]), release.inputs["version"]))
    return tuple(sorted(releases))


def real_folder() -> Path | None:
    """Return the folder that PADDOCK_LAB_CHARTS names. Raises LabInputError where it is not a folder."""
    named = os.environ.get(REAL)
    if not named:
        return None
    folder = Path(named).expanduser().absolute()
    if not folder.is_dir():
        raise LabInputError(
            f"{REAL}: {folder} is not a folder\n"
            "    expected: a folder with charts, <name>-<version>.tgz or <name>/Chart.yaml\n"
            "    fix: name another one, or unset it: the lab has small charts of its own"
        )
    return folder


def serve(folder: Path, required: Iterable[tuple[str, str]], real: Path | None) -> tuple[Served, ...]:
    """Write `<folder>/<name>-<version>.tgz` for each: the chart in `real` where it exists, else the lab's own.

    The same charts give the same bytes. A real chart of another version or a broken one raises LabInputError, and then
    nothing is written.
    """
    served = []
    for name, version in required:
        content = _real(real, name, version) if real else None
        served.append((Served(name, version, folder / f"{name}-{version}.tgz", content is not None), content))
    folder.mkdir(parents=True, exist_ok=True)
    for chart, content in served:
        packed = content if content is not None else _archive(chart.name, _own(chart.name, chart.version))
        files.write(chart.path, packed, sync=False)  # whole: an engine that was left running may be reading it
    return tuple(chart for chart, _ in served)


def _own(name: str, version: str) -> dict[str, bytes]:
    metadata = {
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "appVersion": version,
        "description": f"The lab's stand-in for {name}",
    }
    files = {"Chart.yaml": yaml.safe_dump(metadata, sort_keys=False).encode()}
    return files | _files(_OWN / _COMMON) | _files(_OWN / name)


def _real(folder: Path, name: str, version: str) -> bytes | None:
    """Return the archive of a real chart; None where the folder has none of that name."""
    archive, source = folder / f"{name}-{version}.tgz", folder / name / "Chart.yaml"
    if archive.is_file():
        _check(archive, _members(archive), name, version)
        return archive.read_bytes()
    if source.is_file():
        files = _files(source.parent)
        _check(source, files, name, version)
        return _archive(name, files)
    other_versions = sorted(
        path for path in folder.glob(f"{name}-*.tgz") if re.match(r"v?\d", path.name[len(name) + 1 :])
    )
    if other_versions:
        raise _wrong_version(other_versions[-1], name, other_versions[-1].name[len(name) + 1 : -len(".tgz")], version)
    return None


def _check(path: Path, files: Mapping[str, bytes], name: str, version: str) -> None:
    try:
        metadata: Any = yaml.safe_load(files["Chart.yaml"])
        found_name, found_version = str(metadata["name"]), str(metadata["version"])
        dependencies = [str(dependency["name"]) for dependency in metadata.get("dependencies") or ()]
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, yaml.YAMLError):
        raise _broken(path, f"no {name}/Chart.yaml with a name and a version is in it") from None
    if found_name != name:
        raise _broken(path, f"it is the chart {found_name}, not {name}")
    if found_version != version:
        raise _wrong_version(path, name, found_version, version)
    within = {file.split("/")[1] for file in files if file.startswith("charts/")}
    absent = [
        need for need in dependencies if not any(re.fullmatch(rf"{re.escape(need)}(-v?\d.*\.tgz)?", w) for w in within)
    ]
    if absent:
        raise LabInputError(
            f"{path}: charts that it depends on are not in it: {', '.join(absent)}\n"
            f"    fix: helm dependency build {path.parent}"
        )


def _members(path: Path) -> dict[str, bytes]:
    """Files of a packed chart, by their path below its folder."""
    files = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file:
                    files[member.name.removeprefix("./").partition("/")[2]] = file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _broken(path, str(error)) from None
    return files


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return a packed chart without times or owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files, key=lambda path: (path != "Chart.yaml", path)):
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(files[path])
            archive.addfile(member, io.BytesIO(files[path]))
    return gzip.compress(packed.getvalue(), mtime=0)


def _wrong_version(path: Path, name: str, actual: str, version: str) -> LabInputError:
    return LabInputError(
        f"{path}: {name} {actual}, the fleet releases {version}\n"
        f"    fix: helm pull {name} --version {version} into that folder, or take this file away:"
        " the lab has a small chart of its own"
    )


def _broken(path: Path, why: str) -> LabInputError:
    return LabInputError(
        f"{path} is not a chart: {why}\n    fix: fetch it again, or remove it: the lab has a small chart of its own"
    )
