"""Links on the machine itself: driver, device files, toolkit, runtime, groups, CDI and cgroups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import Detection
from paddock.slurm.validate.link import Link

INSTALL_TOOLKIT = (
    "install nvidia-container-toolkit from NVIDIA's repository"
    " (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html), then: sudo"
    " nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
)
CONFIGURE_RUNTIME = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
_NO_CGROUPS = re.compile(r"^\s*no-cgroups\s*=\s*(true|false)", re.MULTILINE)
_SET_CGROUPS = "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups={}"
_DAEMON_RELOAD = "sudo nvidia-ctk system create-dev-char-symlinks --create-all"


def host_links(detection: Detection, engine: Engine | None, root: Path = Path("/")) -> tuple[Link, ...]:
    """Return the links up to the container, from the driver on; none where no GPU can be passed."""
    if detection.gpu_type == "none":
        return ()
    links = _nvidia if detection.gpu_type == "nvidia" else _amd
    return tuple(links(detection, engine, root))


def _nvidia(detection: Detection, engine: Engine | None, root: Path) -> Iterator[Link]:
    inventory = detection.inventory
    version = inventory.driver.version if inventory.driver else "of unknown version"
    yield Link("driver", "ok", f"NVIDIA {version}, {len(inventory.usable)} GPUs answer")
    if not inventory.machine.wsl:
        yield _device_files([f"nvidia{gpu.minor}" for gpu in inventory.usable if gpu.minor is not None], root)
    yield _toolkit(detection, engine)
    if engine is None:
        return
    yield _runtime(detection, engine)
    if cgroup := _cgroup(detection, engine, root):
        yield cgroup


def _device_files(gpus: list[str], root: Path) -> Link:
    files = ["nvidiactl", "nvidia-uvm", *gpus]
    missing = [f"/dev/{name}" for name in files if not (root / "dev" / name).exists()]
    if missing:
        fix = "sudo nvidia-modprobe -u -c=0, or start nvidia-persistenced at boot"
        return Link("devices", "broken", f"{', '.join(missing)} missing", fix)
    return Link("devices", "ok", f"/dev/{', /dev/'.join(files)}")


def _toolkit(detection: Detection, engine: Engine | None) -> Link:
    runtime = detection.inventory.runtime
    if runtime and runtime.toolkit:
        return Link("toolkit", "ok", f"nvidia-container-toolkit {runtime.toolkit}")
    if engine and engine.desktop:
        return Link("toolkit", "ok", "Docker Desktop brings its own")
    if engine and "nvidia" in engine.runtimes:
        return Link("toolkit", "ok", "Docker has its runtime, nvidia; its version is unknown")
    return Link("toolkit", "broken", "nvidia-container-toolkit is absent: no nvidia-ctk on PATH", INSTALL_TOOLKIT)


def _runtime(detection: Detection, engine: Engine) -> Link:
    specifications = detection.inventory.runtime.cdi if detection.inventory.runtime else ()
    cdi = [*(device for device in engine.devices if device.startswith("nvidia.com/")), *specifications]
    if "nvidia" in engine.runtimes:
        return Link("runtime", "ok", f"Docker {engine.version} has the runtime nvidia")
    if engine.desktop:
        return Link("runtime", "ok", "Docker Desktop passes GPUs by itself")
    if cdi:
        return Link("runtime", "ok", f"CDI: {cdi[0]}{f' and {len(cdi) - 1} more' if len(cdi) > 1 else ''}")
    evidence = f"Docker {engine.version} has no runtime nvidia and no CDI device; --gpus may work by the toolkit's hook"
    return Link("runtime", "warning", evidence, CONFIGURE_RUNTIME)


def _cgroup(detection: Detection, engine: Engine, root: Path) -> Link | None:
    """Return what the toolkit and the engine disagree on, or what a later reload of systemd breaks."""
    settings = _NO_CGROUPS.search(_text(root / "etc/nvidia-container-runtime/config.toml"))
    if settings and settings[1] == "true" and not engine.rootless:
        evidence = "no-cgroups = true keeps the engine, which runs as root, from allowing the GPUs' device files"
        return Link(
            "cgroup", "broken", evidence, f"{_SET_CGROUPS.format('false')}; that setting is for rootless engines"
        )
    if engine.rootless and not (settings and settings[1] == "true"):
        evidence = "the engine is rootless, and may not set up device cgroups"
        return Link("cgroup", "broken", evidence, _SET_CGROUPS.format("true"))
    reloads = engine.cgroup_driver == "systemd" and not any((root / "dev/char").glob("195:*"))
    if reloads and not engine.devices and not detection.inventory.machine.wsl and not engine.desktop:
        evidence = "`systemctl daemon-reload` takes GPUs from running containers: /dev/char has no links to them"
        return Link("cgroup", "warning", evidence, _DAEMON_RELOAD)
    return None


def _amd(detection: Detection, engine: Engine | None, root: Path) -> Iterator[Link]:
    gpus = detection.inventory.usable
    kfd = root / "dev/kfd"
    if not kfd.exists():
        yield Link(
            "driver",
            "broken",
            "there is no /dev/kfd",
            "sudo modprobe amdgpu; ROCm's driver brings it where the kernel has none",
        )
        return
    yield Link("driver", "ok", f"amdgpu with /dev/kfd, {len(gpus)} GPUs")
    nodes = [f"/dev/dri/renderD{gpu.minor}" for gpu in gpus if gpu.minor is not None]
    missing = [node for node in nodes if not (root / node.lstrip("/")).exists()]
    if missing:
        yield Link("devices", "broken", f"{', '.join(missing)} missing", "sudo modprobe amdgpu, and see dmesg")
    else:
        yield Link("devices", "ok", ", ".join(nodes))
    group = gpus[0].device_group if gpus else None
    if group is None:
        yield Link("group", "unknown", "the group of /dev/kfd could not be read", "ls -ln /dev/kfd")
    elif engine and engine.rootless and group not in os.getgroups():
        fix = "sudo usermod -aG video,render $USER, then log in again"
        yield Link("group", "broken", f"the engine runs as this user, who is not in group {group} of /dev/kfd", fix)
    else:
        yield Link("group", "ok", f"/dev/kfd belongs to group {group}, which the container joins by number")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
