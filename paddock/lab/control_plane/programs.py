"""Programs of the lab's control plane: their paths, their versions, and where to get the missing ones.

They are searched in the folders of `PADDOCK_LAB_BIN`, then on PATH, then in the newest cluster of kwokctl. Nothing is
ever downloaded.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paddock.lab.errors import LabInputError

KUBERNETES = "1.35.4"
"""The release that `missing` names; any from `OLDEST` on works, if all three servers have one minor version."""
KWOKCTL = (
    f"KWOK_KUBE_VERSION=v{KUBERNETES} kwokctl create cluster --runtime binary --name paddock"
    " && kwokctl stop cluster --name paddock"
)
"""Command by which kwokctl downloads the programs; the lab then runs them itself."""
OLDEST = (1, 30)
"""ValidatingAdmissionPolicy is stable from here on."""
_PATIENCE = 120.0
"""Seconds for a program to say its version: a hundred megabytes are read from a disk that others may use."""


_SERVER = f"https://dl.k8s.io/v{KUBERNETES}/bin/{{os}}/{{arch}}"
PROGRAMS: Mapping[str, str] = {
    "etcd": "https://github.com/etcd-io/etcd/releases (etcd-v3.6.16-{os}-{arch})",
    "kube-apiserver": f"{_SERVER}/kube-apiserver",
    "kube-controller-manager": f"{_SERVER}/kube-controller-manager",
    "kube-scheduler": f"{_SERVER}/kube-scheduler",
    "kwok": "https://github.com/kubernetes-sigs/kwok/releases (v0.8.0, kwok-{os}-{arch}, as `kwok`)",
}
"""How a user gets each. `{os}` and `{arch}` are this machine's."""
_AT_KWOKCTL = {"kwok": "kwok-controller"}


def locate(names: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return the paths of the programs that exist, by name."""
    path = os.pathsep.join(filter(None, (os.environ.get("PADDOCK_LAB_BIN"), os.environ.get("PATH", os.defpath))))
    newest = _of_kwokctl()
    paths = {
        name: shutil.which(name, path=path) or shutil.which(_AT_KWOKCTL.get(name, name), path=newest) for name in names
    }
    return {name: Path(where).absolute() for name, where in paths.items() if where}


def _of_kwokctl() -> str:
    """Return the folder with the programs of kwokctl's newest cluster without containers; the null device for none."""
    work = os.environ.get("KWOK_WORKDIR") or Path.home() / ".kwok"
    folders = [path for path in Path(work, "clusters").glob("*/bin") if path.is_dir()]
    return str(max(folders, key=lambda path: path.stat().st_mtime)) if folders else os.devnull


def find(names: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return every program's path. Raises LabInputError, which names all that are missing or do not match."""
    names = tuple(names)
    paths = locate(names)
    absent = [name for name in names if name not in paths]
    if absent:
        raise LabInputError(missing(absent))
    with ThreadPoolExecutor(len(names)) as pool:
        versions = dict(zip(names, pool.map(_version, (paths[name] for name in names)), strict=True))
    if wrong := mismatch(versions):
        raise LabInputError(wrong)
    return paths


def missing(absent: Iterable[str]) -> str:
    """Return the message that names all missing programs and where each comes from."""
    system, machine = platform.system().lower(), platform.machine().lower()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    absent = list(absent)
    lines = [f"the lab needs {len(absent)} more program{'s'[: len(absent) != 1]}:"]
    lines += [f"    {name:<24} {PROGRAMS[name].format(os=system, arch=arch)}" for name in absent]
    if system != "linux" and any(name.startswith("kube-") for name in absent):
        lines.append(
            "    Kubernetes releases its servers for Linux alone: run the lab in a Linux machine or container."
        )
    if shutil.which("kwokctl"):
        lines.append(f"    or let kwokctl fetch them: {KWOKCTL}")
    search_path = os.environ.get("PADDOCK_LAB_BIN", "")
    if missing_folders := [
        folder for folder in filter(None, search_path.split(os.pathsep)) if not Path(folder).is_dir()
    ]:
        lines.append(f"    PADDOCK_LAB_BIN names {' and '.join(missing_folders)}, which is not a folder")
    lines.append(
        "    fix: put them on PATH, or in a folder that PADDOCK_LAB_BIN names; docs/lab.md has the commands"
        " (the lab itself downloads nothing)"
    )
    return "\n".join(lines)


def mismatch(versions: Mapping[str, str]) -> str:
    """Return the reason why these versions cannot work together; empty where they can."""
    servers = {name: version for name, version in versions.items() if name.startswith("kube-") and version}
    minors = {name: tuple(int(part) for part in version.split(".")[:2]) for name, version in servers.items()}
    listing = ", ".join(f"{name} {version}" for name, version in sorted(servers.items()))
    if len(set(minors.values())) > 1:
        return f"the Kubernetes programs are of different minor versions: {listing}\n    fix: take all of one release"
    if minors and min(minors.values()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"too old for the lab: {listing}\n    fix: take Kubernetes {oldest} or newer, best {KUBERNETES}"
    return ""


def _version(path: Path) -> str:
    """Return the version that a program prints, such as `1.35.4`; empty where it prints none."""
    try:
        completed = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabInputError(
            f"{path} does not run: {error}\n    fix: replace it by one for {platform.system()} {platform.machine()}"
        ) from None
    match = re.search(r"\bv?(\d+\.\d+(?:\.\d+)?)", completed.stdout + completed.stderr)
    return match[1] if match else ""
