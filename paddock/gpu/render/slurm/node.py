"""Slurm configuration of this machine as a node."""

from __future__ import annotations

import re
from pathlib import Path

from paddock.gpu.errors import GpuError
from paddock.gpu.host.machine import Run
from paddock.gpu.host.machine import run as run_program
from paddock.gpu.render.fields import matching, wrong
from paddock.gpu.render.rendered import Rendered, headed
from paddock.gpu.render.request import RenderRequest
from paddock.gpu.render.slurm import gres as slurm_gres

_HARDWARE = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
_ROUNDED = 0.95
"""Fraction of the memory that slurmd finds: a node with less memory than configured is rejected."""
_FOLDERS = (
    *("usr/lib/x86_64-linux-gnu/slurm-wlm", "usr/lib/aarch64-linux-gnu/slurm-wlm", "usr/lib64/slurm", "usr/lib/slurm"),
    *("usr/local/lib/slurm", "opt/slurm/lib/slurm"),
)
_WHOLE = """ClusterName={cluster}
SlurmctldHost={node}
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
{processes}
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
"""
_HOST = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity"
_CONTAINER = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
_CGROUP = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
_RENUMBERED = "Slurm tells a job the numbers of its GPUs from 0, which are others' unless the job is kept from those"
_PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


def render(
    request: RenderRequest,
    *,
    node: str = "",
    whole: bool = False,
    shards: int = 0,
    version: str = "",
    plugins: str = "",
    hardware: str = "",
    cluster: str = "paddock",
    address: str = "",
    settings: str = "",
) -> Rendered:
    """Render a fragment to include, or with `whole` a minimal slurm.conf. `shards` is the number of jobs per GPU.

    `address` is the node's, where its name does not resolve. `settings` are lines `Name=value` that replace those of
    the whole slurm.conf, or are added to them.

    `version`, `plugins` (`gpu_nvml,gpu_rsmi`) and `hardware` (the output of `slurmd -C`) describe the Slurm that will
    read it; `installed` returns them. Without them the device files are listed, which every Slurm reads.
    """
    facts = _hardware(hardware)
    node = node or facts.pop("NodeName", "") or request.inventory.machine.name.partition(".")[0]
    facts.pop("NodeName", None)
    for option, value in (("node", node), ("cluster", cluster)):
        matching(option, value, r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", "a name of letters, digits and dashes")
    notes, warnings = list(request.notes), list(request.warnings)
    total = _shards(request, shards)
    detected = slurm_gres.autodetect(request, version, plugins.split(",")) if request.devices else None
    gres = slurm_gres.lines(request, node, detected, total) if request.devices else []
    kinds = f"GresTypes={'gpu,shard' if total else 'gpu'}\n" if gres else ""
    count = slurm_gres.counts(request.devices, total)
    line = [f"NodeName={node}", *([f"NodeAddr={address}"] if address else [])]
    line += [f"{name}={value}" for name, value in facts.items()]
    line += [*([f"Gres={count}", f"Feature={slurm_gres.features(request.devices)}"] if gres else []), "State=UNKNOWN"]
    if not facts:
        warnings.append(
            "CPUs and RealMemory of the node are not known, and Slurm takes 1: give what `slurmd -C` prints."
        )
    contained = request.inventory.machine.container
    if gres and not detected and not slurm_gres.same_numbers(request):
        if whole and contained:
            raise GpuError(
                f"{_RENUMBERED}, and in a container nothing does\n    fix: give the container these GPUs alone"
            )
        if not whole:
            warnings.append(f"{_RENUMBERED}: task/cgroup, with ConstrainDevices=yes in cgroup.conf.")
    body = kinds + " ".join(line) + "\n"
    files = [headed("gres.conf", "".join(f"{resource}\n" for resource in gres))]
    if whole:
        host = f"{node}({address})" if address else node
        start = _WHOLE.format(cluster=cluster, node=host, processes=_CONTAINER if contained else _HOST)
        if facts:
            # Without it a job that asks for no memory takes all of the node's, and no other runs next to it.
            start += f"DefMemPerCPU={int(facts['RealMemory']) // int(facts['CPUs'])}\n"
        files.insert(0, headed("slurm.conf", _replaced(start + body, settings) + _PARTITION))
        if not contained:
            files.append(headed("cgroup.conf", _CGROUP))
    else:
        files.insert(0, headed("slurm-gpu.conf", body))
        notes.append("slurm.conf takes it in by `Include slurm-gpu.conf`, in place of its own lines for this node.")
    notes.append(f"Slurm finds the GPUs by AutoDetect={detected}." if detected else "The device files are listed.")
    if request.devices and not request.whole:
        notes.append("Only some of the machine's GPUs are Slurm's, so that it cannot detect them by itself.")
    return Rendered("slurm", tuple(files), tuple(notes if gres else notes[:-1]), tuple(warnings))


def installed(root: Path = Path("/"), run: Run = run_program) -> dict[str, str]:
    """Return the options `version`, `plugins` and `hardware` of this machine's Slurm; empty where there is none."""
    version = run(["slurmd", "-V"])
    if version is None:
        return {}
    available = sorted({file.stem for folder in _FOLDERS for file in (root / folder).glob("gpu_*.so")})
    number = re.search(r"\d+(\.\d+)+", version)
    lines = (run(["slurmd", "-C"]) or "").splitlines()
    return {
        "version": number[0] if number else "",
        "plugins": ",".join(available),
        "hardware": next((line for line in lines if line.startswith("NodeName=")), ""),
    }


def _replaced(text: str, settings: str) -> str:
    """Return slurm.conf with these lines in place of its own of the same names. Raises GpuInputError."""
    lines = text.splitlines()
    for setting in filter(None, map(str.strip, settings.splitlines())):
        name, equals, value = setting.partition("=")
        if not equals or not name.isalnum() or not value or name in ("NodeName", "PartitionName"):
            raise wrong(f"settings has {setting!r}", "lines such as SlurmctldPort=6817, none for nodes or partitions")
        start = f"{name}=".lower()
        same = [index for index, line in enumerate(lines) if line.lower().startswith(start)]
        if same:
            lines[same[0]] = setting
        else:
            lines.insert(next(i for i, line in enumerate(lines) if line.startswith("NodeName=")), setting)
    return "".join(f"{line}\n" for line in lines)


def _hardware(text: str) -> dict[str, str]:
    """Parse the output of `slurmd -C`. Raises GpuInputError."""
    if not text.strip():
        return {}
    facts = dict(re.findall(r"(\w+)=(\S+)", text))
    if "CPUs" not in facts or not facts.get("RealMemory", "").isdecimal():
        raise wrong(f"hardware is {text.strip()!r}", "the line that `slurmd -C` prints, with CPUs and RealMemory")
    facts["RealMemory"] = str(int(int(facts["RealMemory"]) * _ROUNDED))
    return {name: facts[name] for name in ("NodeName", *_HARDWARE) if name in facts}


def _shards(request: RenderRequest, requested: int) -> int:
    """Return the shards of all GPUs together. Raises GpuInputError."""
    if requested < 0:
        raise wrong(f"shards is {requested}", "a whole number, 0 for none")
    per_gpu = requested or (int(1 / request.share + 1e-9) if request.share else 0)
    if per_gpu == 1:
        raise wrong("shards is 1", "2 or more, or 0: one shard is the whole GPU")
    if per_gpu and any(device.part for device in request.devices):
        raise wrong("shards of MIG parts", "one of them", "leave shards out")
    return per_gpu * len(request.devices)
