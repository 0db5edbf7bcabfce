"""The machine around the GPUs: a container or not, its CUDA toolkit, what gives GPUs to its containers.

`root` is where /proc, /sys, /etc and the rest lie. Nothing here fails: what cannot be read is not known.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paddock.gpu.model import ContainerRuntime, Machine, Toolkit

_HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first namespace this number."""
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|libpod|lxc")
_PROGRAM_SECONDS = 5

Run = Callable[[Sequence[str]], str | None]
"""What a program prints; None where it is absent, fails or takes too long."""


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
    """Whether a pid here is the same process to the driver, whichever it tells: the host's, or those seen from here."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == _HOST_PID_NAMESPACE
    except OSError:
        return False


def owner(pid: int, root: Path = Path("/")) -> tuple[str | None, str | None]:
    """The program and the user of a process."""
    folder = root / "proc" / str(pid)
    try:
        program = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        uid = folder.stat().st_uid
    except OSError:
        return None, None
    return program.rpartition("/")[2] or _text(folder / "comm"), _user(uid)


def toolkit(root: Path = Path("/"), environ: Mapping[str, str] = os.environ, run: Run | None = None) -> Toolkit | None:
    """The CUDA toolkit of CUDA_HOME, else of /usr/local/cuda, else ROCm. With `run`, nvcc on PATH is asked as well."""
    named = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    for path in (*([named] if named else []), "/usr/local/cuda"):
        if version := _cuda_version(root / path.lstrip("/")):
            return Toolkit(version, path, _compat(root / path.lstrip("/")))
    if run and (found := _version(run(["nvcc", "--version"]), r"release \S+ V(\S+)")):
        return Toolkit(found, "nvcc")
    rocm = _text(root / "opt/rocm/.info/version")
    return Toolkit(rocm.partition("-")[0], "/opt/rocm") if rocm else None


def container_runtime(root: Path = Path("/"), run: Run | None = None) -> ContainerRuntime | None:
    """As the files on disk say. With `run`, the Docker engine and nvidia-ctk are asked, which can take seconds."""
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
        told = _parsed(run(["docker", "info", "--format", "{{json .}}"]))
        docker = told.get("ServerVersion")
        runtimes, default = told.get("Runtimes") or runtimes, told.get("DefaultRuntime") or default
    names = tuple(sorted(runtimes)) if isinstance(runtimes, dict) else ()
    known = ContainerRuntime(_string(ctk), _string(docker), names, _string(default), specifications)
    return None if known == ContainerRuntime() else known


def run(command: Sequence[str]) -> str | None:
    """Runs a program of this machine; see Run."""
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def _system() -> Literal["linux", "macos", "windows", "other"]:
    known: dict[str, Literal["linux", "macos", "windows"]] = {"linux": "linux", "darwin": "macos", "win32": "windows"}
    return known.get(sys.platform, "other")


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
    """The newest libcuda of the compatibility package: `libcuda.so.580.95.05`."""
    versions = [
        found[1]
        for file in _listed(folder / "compat")
        if (found := re.fullmatch(r"libcuda\.so\.(\d+(?:\.\d+)+)", file.name))
    ]
    return max(versions, key=lambda version: tuple(map(int, version.split("."))), default=None)


def _version(text: str | None, pattern: str) -> str | None:
    found = re.search(pattern, text or "")
    return found[1] if found else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _object(path: Path) -> dict[str, Any]:
    return _parsed(_text(path))


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
