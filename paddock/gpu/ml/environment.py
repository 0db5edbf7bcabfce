"""An environment in which a framework sees the GPUs that were leased for it, and no others."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from paddock.gpu import serialization
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.host.processes import Owner
from paddock.gpu.leases import selection
from paddock.gpu.leases.allocation import Look, exports, looking, obtain
from paddock.gpu.leases.allocation import environment as variables_of
from paddock.gpu.leases.lease import data
from paddock.gpu.leases.manager import Grant, Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.ml import start as ml_start
from paddock.gpu.ml.choice import FRAMEWORKS, Pick, pick
from paddock.gpu.model import Inventory, Vendor

SCHEMA = 1
Target = Literal["docker", "kubernetes", "venv"]
Document = dict[str, Any]
_SEED = {"Framework": "framework", "ContainerImage": "image", "RequiredCUDAVersion": "cuda"}


@dataclass(frozen=True, slots=True)
class _Given:
    """The GPUs of an environment; without a lease where the cluster chooses, or nothing can be leased."""

    inventory: Inventory
    uuids: tuple[str, ...]
    environment: Mapping[str, str | None]
    notes: tuple[str, ...]
    grant: Grant | None = None

    @property
    def vendor(self) -> Vendor:
        return self.inventory.usable[0].vendor


def environment(
    framework: str,
    *,
    min_memory_gib: float = 0,
    gpus: int = 1,
    request: Request | None = None,
    cuda: str | None = None,
    target: str = "docker",
    image: str | None = None,
    start: bool = False,
    path: Path | None = None,
    owner: int | None = None,
    ttl: float | None = None,
    wait: float = 0,
    leases: Leases | None = None,
    look: Look | None = None,
) -> Document:
    """What starts it, with the GPUs leased; `start` does so too, and looks from inside whether it sees just them.

    `request` is in place of `min_memory_gib` and `gpus`. `path` is the folder of a virtual environment. The lease is
    that of `paddock.gpu.leases.allocation.allocate`; it is given back where anything fails. Kubernetes chooses
    GPUs itself, so for it nothing is leased or started. Raises NoneFree, GpuError and GpuInputError.
    """
    _check(framework, target, image, start)
    wanted = request or Request(count=gpus, min_memory_gib=min_memory_gib)
    leases = leases or (None if sys.platform == "darwin" else Leases())
    given = _given(wanted, target, look or looking(wanted), leases, owner, ttl, wait)
    try:
        found = pick(framework, given.inventory, contained=target != "venv", cuda=cuda, image=image)
        folder = path or Path(f".venv-{framework}")
        told = _rendered(framework, target, wanted, given, found, folder)
        if start:
            told |= _started(framework, target, given, told, folder)
    except BaseException:
        if given.grant and leases:
            leases.release(given.grant.lease.id)
        raise
    return told


def of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the older connector's MLEnvironmentConfig means. Raises GpuInputError."""
    found: dict[str, Any] = {}
    for given, value in config.items():
        if given == "GPURequirements":
            found["request"] = Request.of(value)
        elif given in _SEED:
            found[_SEED[given]] = value or None
        else:
            from difflib import get_close_matches

            known = ["GPURequirements", *_SEED]
            near = get_close_matches(given, known, 1)
            expected = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            raise GpuInputError(f"an ML environment has no {given!r}\n    expected: {expected}")
    if not found.get("framework"):
        found["framework"] = "none"
    return found


def _check(framework: str, target: str, image: str | None, start: bool) -> None:
    for name, value, allowed in (("framework", framework, FRAMEWORKS), ("target", target, get_args(Target))):
        if value not in allowed:
            raise GpuInputError(f"{name} is {value!r}\n    expected: one of {', '.join(allowed)}")
    if target == "venv" and image:
        raise GpuInputError(f"a venv has no image, and {image} is one\n    expected: none\n    fix: --target docker")
    if target == "kubernetes" and start:
        raise GpuInputError(
            "a pod is not started from here\n    expected: its manifest\n    fix: kubectl apply, or a workflow"
        )


def _given(
    wanted: Request,
    target: str,
    look: Look,
    leases: Leases | None,
    owner: int | None,
    ttl: float | None,
    wait: float,
) -> _Given:
    if target == "kubernetes" or leases is None:
        inventory = look()
        choice = selection.choose(inventory, wanted)
        if not choice.satisfied:
            raise NoneFree(choice) if inventory.gpus else NoGpu(choice.why)
        uuids = tuple(one.uuid for one in choice.taken)
        why = "Kubernetes chooses the GPUs" if target == "kubernetes" else "GPUs cannot be leased on this system"
        return _Given(_only(inventory, uuids), uuids, {}, (*choice.notes, f"{why}, so none was leased."))
    owners: tuple[Owner, ...] = () if owner is None and ttl is not None else (leases.host.caller(),)
    if owner is not None:
        owners = (leases.host.owner(owner),)
    grant = obtain(leases, wanted, look, owners=owners, ttl=ttl, wait=wait, command="ml-env")
    uuids = tuple(device.uuid for device in grant.lease.devices)
    return _Given(_only(grant.inventory, uuids), uuids, variables_of(grant), grant.choice.notes, grant)


def _only(inventory: Inventory, uuids: tuple[str, ...]) -> Inventory:
    """The same machine with those GPUs alone."""
    gpus = {gpu.uuid for uuid in uuids if (gpu := inventory.gpu(uuid))}
    return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid in gpus))


def _rendered(framework: str, target: str, wanted: Request, given: _Given, found: Pick, folder: Path) -> Document:
    commands: list[list[str]] = []
    files: list[Document] = []
    notes = [*given.notes]
    if found.verdict != "ok":
        notes.append(f"{'Limited' if found.verdict == 'minor-version' else 'Not known'}: {found.why}.")
    if target == "venv":
        commands = _venv_commands(found, folder)
    else:
        from paddock.gpu import render

        exactly = replace(wanted, count=len(given.uuids), uuids=given.uuids, near="none")
        options: dict[str, Any] = {"image": found.image, "name": f"ml-{framework}"} if target == "kubernetes" else {}
        made = render.told(render.render(target, given.inventory, exactly, **options))
        notes += [*made["notes"], *made["warnings"]]
        files = made["files"]
        if target == "docker":
            commands = [_docker_command(given, files, found)]
    return {
        "schema": SCHEMA,
        "framework": framework,
        "target": target,
        "gpus": list(given.uuids),
        "lease": data(given.grant.lease) if given.grant else None,
        "build": serialization.data(found.build),
        "image": found.image,
        "cuda": found.cuda,
        "verdict": found.verdict,
        "why": found.why,
        "commands": commands,
        "files": files,
        "environment": dict(given.environment) if target == "venv" else {},
        "exports": exports(given.environment) if target == "venv" else "",
        "verification": {"program": ml_start.program(), "expected": list(given.uuids)},
        "started": False,
        "seen": None,
        "notes": notes,
    }


def _venv_commands(found: Pick, folder: Path) -> list[list[str]]:
    packages = list(getattr(found.build, "packages", ()))
    index = getattr(found.build, "index", None)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", *(["--index-url", index] if index else []), *packages]
    return [[sys.executable, "-m", "venv", str(folder)], *([install] if packages else [])]


def _docker_command(given: _Given, files: list[Document], found: Pick) -> list[str]:
    arguments = shlex.split(files[0]["text"])
    name = f"ml-{given.grant.lease.id}" if given.grant else "ml"
    return ["docker", "run", "--rm", "--detach", "--name", name, *arguments, str(found.image), "sleep", "infinity"]


def _started(framework: str, target: str, given: _Given, told: Document, folder: Path) -> Document:
    """What changes in the document. Raises GpuError where it does not start, or does not see its GPUs."""
    if target == "venv":
        ml_start.virtual_environment(told["commands"], folder)
        try:
            seen = ml_start.compare(
                given.uuids, ml_start.seen_in_virtual_environment(framework, folder, given.environment), given.vendor
            )
            _right(seen, framework)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return {"started": True, "seen": serialization.data(seen), "path": os.fspath(folder.resolve())}
    if why := ml_start.engine():
        return {"notes": [*told["notes"], f"Nothing was started: {why}."]}
    command = told["commands"][0]
    name = command[command.index("--name") + 1]
    ml_start.container(command, name)
    try:
        seen = ml_start.compare(given.uuids, ml_start.seen_in_container(framework, name), given.vendor)
        _right(seen, framework)
    except BaseException:
        ml_start.remove(name)
        raise
    return {"started": True, "seen": serialization.data(seen), "container": name}


def _right(seen: ml_start.Seen, framework: str) -> None:
    if not seen.ok:
        what = "the driver" if framework == "none" else framework
        raise GpuError(
            f"{what} does not see the GPUs that were leased for it: {seen.why}"
            f"\n    expected: {', '.join(seen.expected)}"
            "\n    fix: `paddock gpu.cuda-info` judges driver and toolkit; in a container see its runtime"
        )
