"""Files of Slurm for the GPUs that are here: generated, replaced by customised ones, checked, written."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paddock import files
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from paddock.gpu.render.rendered import File, customised, headed
from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.nodes import node_gres
from paddock.slurm.start.devices import Usable
from paddock.slurm.start.hardware import Hardware
from paddock.slurm.start.layout import Layout, Users
from paddock.slurm.start.request import StartRequest
from paddock.slurm.write import task_prolog
from paddock.slurm.write.slurm_files import Cluster, Node, slurm_files

Check = Callable[[Path, str], str]
"""Function of the folder of the files and the node's name, which returns what is wrong with them, or nothing."""
_NODE_LINE = re.compile(r"^NodeName=.*\n", re.MULTILINE)

_JOINING = re.compile(r"\b(?:CPUs|Boards|SocketsPerBoard|CoresPerSocket|ThreadsPerCore|RealMemory|Gres|Feature)=\S+")
"""Facts that a node joins with."""


@dataclass(frozen=True, slots=True)
class Written:
    """Files in their place. `join` is what a dynamic node registers with."""

    node: str
    gres: str
    join: str
    warnings: tuple[str, ...] = ()
    customised: tuple[str, ...] = ()
    changed: bool = False
    cluster: str = ""


def write(
    request: StartRequest,
    layout: Layout,
    users: Users,
    usable: Usable,
    hardware: Hardware,
    slurm: dict[str, str],
    check: Check,
) -> Written:
    """Write the files for the usable GPUs, and fall back to fewer features until Slurm accepts them.

    `slurm` has version and plugins, as `installed` returns them. A customised file is used as it is, and then nothing
    is fallen back to. Raises SlurmError.
    """
    own = _customised(layout.source)
    warnings: list[str] = []
    inventory = usable.inventory
    last = replace(inventory, gpus=(), pairs=())
    # Slurm detects all GPUs that the driver counts, even those left out.
    plugins = slurm.get("plugins", "") if usable.whole else ""
    attempts = [(inventory, plugins), (inventory, ""), (last, "")]
    if not inventory.gpus:
        attempts = attempts[-1:]
    elif not attempts[0][1]:
        attempts = attempts[1:]
    problem = ""
    for gpus, plugins in attempts:
        try:
            static = _rendered(request, layout, users, gpus, hardware, slurm.get("version", ""), plugins)
        except GpuError as error:
            problem = str(error).splitlines()[0]
            warnings.append(f"{problem}; the node starts with {'the device files listed' if plugins else 'no GPUs'}")
            continue
        prolog = task_prolog.task_prolog(usable.uuids if gpus.gpus and not usable.whole else ())
        chosen = {**static, **own, prolog.path: prolog.text}
        name = _node_name(chosen["slurm.conf"]) or request.name
        problem = _trial(chosen, name, check) if request.role != "controller" else ""
        if not problem or own:
            if problem:
                warnings.append(f"{' and '.join(sorted(own))} (customised) does not fit this machine: {problem}")
            warnings += _risks(own, layout, usable)
            return _place(request, layout, chosen, name, tuple(warnings), tuple(sorted(own)))
        if gpus.gpus:
            warnings.append(f"{problem}; the node starts with {'the device files listed' if plugins else 'no GPUs'}")
    raise SlurmError(f"Slurm refuses the files for this machine, even without GPUs: {problem}")


def _rendered(
    request: StartRequest,
    layout: Layout,
    users: Users,
    inventory: Inventory,
    hardware: Hardware,
    version: str,
    plugins: str,
) -> dict[str, str]:
    """Return the texts by file name for a static node."""
    settings = {
        "SlurmUser": users.slurm.pw_name,
        "SlurmdUser": users.daemon.pw_name,
        "SlurmdSpoolDir": str(layout.spool_of(users)),
        "SlurmctldPort": str(request.controller_port),
        "SlurmdPort": str(request.daemon_port),
        "TaskProlog": str(layout.etc / task_prolog.NAME),
    }
    node = Node(name=request.name, hardware=hardware.line, version=version, plugins=plugins)
    cluster = Cluster(name=request.cluster, shards=request.shards, settings=settings)
    return {file.path: file.text for file in slurm_files(inventory, node, cluster).files}


def _risks(own: Mapping[str, str], layout: Layout, usable: Usable) -> list[str]:
    """Return warnings about customised files that give jobs other GPUs than they asked for."""
    risks = []
    line = f"TaskProlog={layout.etc / task_prolog.NAME}"
    if "slurm.conf" in own and line not in own["slurm.conf"].splitlines():
        risks.append(f"slurm.conf (customised) lacks the line {line}: jobs without GPUs see all of them")
    if usable.inventory.gpus and not usable.whole and "gres.conf" in own:
        risks.append(
            "gres.conf (customised) is used as it is, though GPUs are left out: it must list exactly the device files"
            f" of {', '.join(usable.uuids)}"
        )
    return risks


def _customised(source: Path) -> dict[str, str]:
    """Return the customised files of the host's folder. Raises SlurmError for one that cannot be read."""
    texts = {}
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        try:
            text = (source / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise SlurmError(f"cannot read {source / name}: {why}\n    fix: chmod a+r it on the host") from None
        if customised(text):
            texts[name] = text
    return texts


def _node_name(slurm_conf: str) -> str:
    """Return the node's name where slurm.conf has exactly one."""
    names = re.findall(r"^\s*NodeName=(\S+)", slurm_conf, re.MULTILINE | re.IGNORECASE)
    names = [name for name in names if name.upper() != "DEFAULT"]
    return names[0] if len(names) == 1 and re.fullmatch(r"[\w.-]+", names[0]) else ""


def _trial(texts: dict[str, str], name: str, check: Check) -> str:
    folder = Path(tempfile.mkdtemp(prefix="paddock-slurm-"))
    try:
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
        return check(folder, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place(
    request: StartRequest,
    layout: Layout,
    texts: dict[str, str],
    name: str,
    warnings: tuple[str, ...],
    own: Sequence[str],
) -> Written:
    slurm_conf = texts["slurm.conf"]
    gres, join = node_gres(slurm_conf), ""
    if request.dynamic and "slurm.conf" not in own:
        line = _NODE_LINE.search(slurm_conf)
        facts = _JOINING.findall(line[0]) if line else []
        join = " ".join(facts)
        texts = {**texts, "slurm.conf": _joinable(slurm_conf, request).text}
    changed = False
    for path, text in texts.items():
        target = layout.etc / path
        try:
            if target.exists() and target.read_text(encoding="utf-8") == text:
                continue
            files.write(target, text, 0o755 if path == task_prolog.NAME else 0o644)
        except (OSError, UnicodeDecodeError) as error:
            raise SlurmError(
                f"cannot write {target}: {getattr(error, 'strerror', None) or error}"
                f"\n    fix: mount your files at {layout.source}, not at {layout.etc}"
            ) from None
        changed = True
    cluster = re.search(r"^\s*ClusterName=(\S+)", slurm_conf, re.MULTILINE | re.IGNORECASE)
    return Written(name, gres, join, warnings, tuple(own), changed, cluster[1] if cluster else request.cluster)


def _joinable(slurm_conf: str, request: StartRequest) -> File:
    """Return slurm.conf without nodes, which join the controller by themselves."""
    body = "\n".join(slurm_conf.splitlines()[1:])
    body = _NODE_LINE.sub(f"MaxNodeCount={request.nodes}\nTreeWidth=65533\n", f"{body}\n", count=1)
    host = request.controller or request.name
    body = re.sub(r"^SlurmctldHost=.*$", f"SlurmctldHost={host}", body, count=1, flags=re.MULTILINE)
    # Of no machine in particular: all of the cluster have the same file.
    body = re.sub(r"^DefMemPerCPU=.*$", "DefMemPerCPU=1024", body, flags=re.MULTILINE)
    return headed("slurm.conf", body)
