"""The machine around the GPUs: a container or not, its CUDA toolkit, its container runtime.

`root` holds /proc, /sys, /etc and the rest. Nothing here raises: what cannot be read is None.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paddock.errors import one_line
from paddock.gpu.host.processes import FIRST_NAMESPACE
from paddock.gpu.model import ContainerRuntime, Machine, Toolkit

_CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|libpod|lxc")
_PROGRAM_SECONDS = 5

Run = Callable[[Sequence[str]], str | None]
"""Returns a program's output; None where it is absent, fails or takes too long."""


def machine(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Machine:
    about = os.uname() if hasattr(os, "uname") else None
    release = _text(root / "proc/sys/kernel/osrelease") or ""
    return Machine(
        name=about.nodename if about else environ.get("COMPUTERNAME", ""),
        system=_system(),
        architecture=about.machine if about else environ.get("PROCESSOR_ARCHITECTURE", ""),
        container=_contained(root, environ),
        wsl="microsoft" in release.lower() or (root / "dev/dxg").exists(),
        boot_id=_text(root / "proc/sys/kernel/random/boot_id"),
    )


def sees_host_processes(root: Path = Path("/")) -> bool:
    """Return True where a pid means the same process here and to the driver."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == FIRST_NAMESPACE
    except OSError:
        return False


def owner(pid: int, root: Path = Path("/")) -> tuple[str | None, str | None]:
    """Return the program and the user of a process."""
    folder = root / "proc" / str(pid)
    try:
        program = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        uid = folder.stat().st_uid
    except OSError:
        return None, None
    name = program.rpartition("/")[2] or _text(folder / "comm")
    return one_line(name) if name else None, _user(uid)  # a program names itself as it likes


def toolkit(root: Path = Path("/"), environ: Mapping[str, str] = os.environ, run: Run | None = None) -> Toolkit | None:
    """Return the CUDA toolkit of CUDA_HOME, else of /usr/local/cuda, else of nvcc on PATH (with `run`), else ROCm."""
    configured = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    for path in (*([configured] if configured else []), "/usr/local/cuda"):
        if version := _cuda_version(root / path.lstrip("/")):
            return Toolkit(version, path, _compat(root / path.lstrip("/")))
    if run and (nvcc := _version(run(["nvcc", "--version"]), r"release \S+ V(\S+)")):
        return Toolkit(nvcc, "nvcc")
    rocm = _text(root / "opt/rocm/.info/version")
    return Toolkit(rocm.partition("-")[0], "/opt/rocm") if rocm else None


def container_runtime(root: Path = Path("/"), run: Run | None = None) -> ContainerRuntime | None:
    """Return what the files on disk say; with `run` also the Docker engine and nvidia-ctk, which can take seconds."""
    daemon = _object(root / "etc/docker/daemon.json")
    folders = (root / "etc/cdi", root / "var/run/cdi")
    specifications = tuple(
        "/" + file.relative_to(root).as_posix()
        for folder in folders
        for file in sorted(_listed(folder))
        if file.suffix in {".json", ".yaml", ".yml"}
    )
    runtimes, default, docker, ctk = daemon.get("runtimes"), daemon.get("default-runtime"), None, None
    if run:
        ctk = _version(run(["nvidia-ctk", "--version"]), r"version (\S+)")
        docker_info = _parsed(run(["docker", "info", "--format", "{{json .}}"]))
        docker = docker_info.get("ServerVersion")
        runtimes, default = docker_info.get("Runtimes") or runtimes, docker_info.get("DefaultRuntime") or default
    names = tuple(sorted(runtimes)) if isinstance(runtimes, dict) else ()
    runtime = ContainerRuntime(_string(ctk), _string(docker), names, _string(default), specifications)
    return None if runtime == ContainerRuntime() else runtime


def run(command: Sequence[str]) -> str | None:
    """Run a program of this machine; see Run."""
    import subprocess

    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return result.stdout if result.returncode == 0 else None


def _system() -> Literal["linux", "macos", "windows", "other"]:
    names: dict[str, Literal["linux", "macos", "windows"]] = {"linux": "linux", "darwin": "macos", "win32": "windows"}
    return names.get(sys.platform, "other")


def _contained(root: Path, environ: Mapping[str, str]) -> bool:
    if "KUBERNETES_SERVICE_HOST" in environ or any((root / mark).exists() for mark in _CONTAINER_MARKS):
        return True
    return bool(_CONTAINER_GROUPS.search(_text(root / "proc/1/cgroup") or ""))


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _cuda_version(folder: Path) -> str | None:
    about = _object(folder / "version.json").get("cuda")
    if isinstance(about, dict) and _string(about.get("version")):
        return str(about["version"])
    return _version(_text(folder / "version.txt"), r"CUDA Version (\S+)")


def _compat(folder: Path) -> str | None:
    """Return the newest version of the compatibility package, by its files: `libcuda.so.580.95.05`."""
    versions = [
        match[1]
        for file in _listed(folder / "compat")
        if (match := re.fullmatch(r"libcuda\.so\.(\d+(?:\.\d+)+)", file.name))
    ]
    return max(versions, key=lambda version: tuple(map(int, version.split("."))), default=None)


def _version(text: str | None, pattern: str) -> str | None:
    match = re.search(pattern, text or "")
    return match[1] if match else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _object(path: Path) -> dict[str, Any]:
    return _parsed(_text(path))


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
