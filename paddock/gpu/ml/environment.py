"""Environment in which a framework sees exactly the GPUs that were leased for it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from paddock.console.parameters import one_of
from paddock.errors import program
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.health.check import logged_events
from paddock.gpu.host.processes import Owner
from paddock.gpu.leases import selection
from paddock.gpu.leases.allocation import InventoryReader, exports, inventory_reader, obtain
from paddock.gpu.leases.allocation import environment as variables_of
from paddock.gpu.leases.lease import data
from paddock.gpu.leases.manager import Grant, Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.ml import start as ml_start
from paddock.gpu.ml.choice import FRAMEWORKS, Pick, pick
from paddock.gpu.model import SCHEMA, Inventory, Vendor

Target = Literal["docker", "kubernetes", "venv"]
Document = dict[str, Any]
_ACTION_ARGUMENTS = {"Framework": "framework", "ContainerImage": "image", "RequiredCUDAVersion": "cuda"}


@dataclass(frozen=True, slots=True)
class _Reserved:
    """The GPUs of an environment; without a lease where the cluster chooses them or leases are not supported."""

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
    priority: int = 0,
    leases: Leases | None = None,
    read_inventory: InventoryReader | None = None,
) -> Document:
    """Lease the GPUs and return the commands and files; with `start`, also run them and verify the GPUs from inside.

    `request` replaces `min_memory_gib` and `gpus`. `path` is the folder of a virtual environment. The lease is that of
    `paddock.gpu.leases.allocation.allocate`; it is released if anything fails. Kubernetes chooses GPUs itself, so for
    it nothing is leased or started. Raises NoneFree, GpuError and GpuInputError.
    """
    _check(framework, target, image, start)
    gpu_request = request or Request(count=gpus, min_memory_gib=min_memory_gib)
    leases = leases or (None if sys.platform == "darwin" else Leases())
    with ExitStack() as cleanup:
        reserved = _reserve(gpu_request, target, read_inventory, leases, owner, ttl, wait, priority, cleanup)
        picked = pick(framework, reserved.inventory, contained=target != "venv", cuda=cuda, image=image)
        folder = path or Path(f".venv-{framework}")
        document = _document(framework, target, gpu_request, reserved, picked, folder)
        if start:
            document |= _start(framework, target, reserved, document, folder)
        cleanup.pop_all()
    return document


def from_dict(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the older connector's MLEnvironmentConfig. Raises GpuInputError."""
    arguments: dict[str, Any] = {}
    for key, value in config.items():
        if key == "GPURequirements":
            arguments["request"] = Request.from_dict(value)
        elif key in _ACTION_ARGUMENTS:
            arguments[_ACTION_ARGUMENTS[key]] = value or None
        else:
            allowed = ["GPURequirements", *_ACTION_ARGUMENTS]
            raise GpuInputError(f"an ML environment has no {key!r}\n    expected: {one_of(key, allowed)}")
    if not arguments.get("framework"):
        arguments["framework"] = "none"
    return arguments


def _check(framework: str, target: str, image: str | None, start: bool) -> None:
    for name, value, allowed in (("framework", framework, FRAMEWORKS), ("target", target, get_args(Target))):
        if value not in allowed:
            raise GpuInputError(f" is {value!r}\n    expected: one of {', '.join(allowed)}", name)
    if target == "venv" and image:
        raise GpuInputError(f"a venv has no image, but {image} was given\n    expected: none\n    fix: --target docker")
    if target == "kubernetes" and start:
        raise GpuInputError(
            "a pod is not started from here\n    expected: its manifest\n    fix: kubectl apply, or a workflow"
        )


def _reserve(
    request: Request,
    target: str,
    read_inventory: InventoryReader | None,
    leases: Leases | None,
    owner: int | None,
    ttl: float | None,
    wait: float,
    priority: int,
    cleanup: ExitStack,
) -> _Reserved:
    if target == "kubernetes" or leases is None:
        if read_inventory is None:
            xids = logged_events()
            with inventory_reader(request) as read:
                inventory = read()
        else:
            inventory, xids = read_inventory(), ()
        choice = selection.choose(inventory, request, xids=xids)
        if not choice.satisfied:
            raise NoneFree(choice) if inventory.gpus else NoGpu(choice.why)
        uuids = tuple(device.uuid for device in choice.taken)
        why = "Kubernetes chooses the GPUs" if target == "kubernetes" else "GPUs cannot be leased on this system"
        return _Reserved(_restrict(inventory, uuids), uuids, {}, (*choice.notes, f"{why}, so none was leased."))
    owners: tuple[Owner, ...] = () if owner is None and ttl is not None else (leases.host.caller(),)
    if owner is not None:
        owners = (leases.host.owner(owner),)
    grant = obtain(
        leases, request, read_inventory, owners=owners, ttl=ttl, wait=wait, priority=priority, command="ml-env"
    )
    cleanup.callback(leases.release, grant.lease.id)
    uuids = tuple(device.uuid for device in grant.lease.devices)
    return _Reserved(_restrict(grant.inventory, uuids), uuids, variables_of(grant), grant.choice.notes, grant)


def _restrict(inventory: Inventory, uuids: tuple[str, ...]) -> Inventory:
    """Return the inventory with only these GPUs."""
    gpus = {gpu.uuid for uuid in uuids if (gpu := inventory.gpu(uuid))}
    return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid in gpus))


def _document(
    framework: str, target: str, request: Request, reserved: _Reserved, picked: Pick, folder: Path
) -> Document:
    commands: list[list[str]] = []
    files: list[Document] = []
    notes = [*reserved.notes]
    if picked.verdict != "ok":
        notes.append(f"{'Limited' if picked.verdict == 'minor-version' else 'Not known'}: {picked.why}.")
    if target == "venv":
        commands = _venv_commands(picked, folder)
    else:
        from paddock.gpu import render

        pinned = replace(request, count=len(reserved.uuids), uuids=reserved.uuids, near="none")
        options: dict[str, Any] = {"image": picked.image, "name": f"ml-{framework}"} if target == "kubernetes" else {}
        configuration = render.to_document(render.render(target, reserved.inventory, pinned, **options))
        notes += [*configuration["notes"], *configuration["warnings"]]
        files = configuration["files"]
        if target == "docker":
            commands = [_docker_command(reserved, files, picked)]
    return {
        "schema": SCHEMA,
        "framework": framework,
        "target": target,
        "gpus": list(reserved.uuids),
        "lease": data(reserved.grant.lease) if reserved.grant else None,
        "build": serialization.data(picked.build),
        "image": picked.image,
        "cuda": picked.cuda,
        "verdict": picked.verdict,
        "why": picked.why,
        "commands": commands,
        "files": files,
        "environment": dict(reserved.environment) if target == "venv" else {},
        "exports": exports(reserved.environment) if target == "venv" else "",
        "verification": {"program": ml_start.probe_program(), "expected": list(reserved.uuids)},
        "started": False,
        "seen": None,
        "notes": notes,
    }


def _venv_commands(picked: Pick, folder: Path) -> list[list[str]]:
    packages = list(getattr(picked.build, "packages", ()))
    index = getattr(picked.build, "index", None)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", *(["--index-url", index] if index else []), *packages]
    return [[sys.executable, "-m", "venv", str(folder)], *([install] if packages else [])]


def _docker_command(reserved: _Reserved, files: list[Document], picked: Pick) -> list[str]:
    arguments = shlex.split(files[0]["text"])
    name = f"ml-{reserved.grant.lease.id}" if reserved.grant else "ml"
    return ["docker", "run", "--rm", "--detach", "--name", name, *arguments, str(picked.image), "sleep", "infinity"]


def _start(framework: str, target: str, reserved: _Reserved, document: Document, folder: Path) -> Document:
    """Start it and return the changes to the document. Raises GpuError if it fails or does not see its GPUs."""
    if target == "venv":
        ml_start.create_venv(document["commands"], folder)
        try:
            visibility = ml_start.compare(
                reserved.uuids, ml_start.probe_venv(framework, folder, reserved.environment), reserved.vendor
            )
            _require_visible(visibility, framework)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return {"started": True, "seen": serialization.data(visibility), "path": os.fspath(folder.resolve())}
    if why := ml_start.engine_problem():
        return {"notes": [*document["notes"], f"Nothing was started: {why}."]}
    command = document["commands"][0]
    name = command[command.index("--name") + 1]
    ml_start.start_container(command, name)
    try:
        visibility = ml_start.compare(reserved.uuids, ml_start.probe_container(framework, name), reserved.vendor)
        _require_visible(visibility, framework)
    except BaseException:
        ml_start.remove_container(name)
        raise
    return {"started": True, "seen": serialization.data(visibility), "container": name}


def _require_visible(visibility: ml_start.Visibility, framework: str) -> None:
    if not visibility.ok:
        reader = "the driver" if framework == "none" else framework
        raise GpuError(
            f"{reader} does not see the GPUs that were leased for it: {visibility.why}"
            f"\n    expected: {', '.join(visibility.expected)}"
            f"\n    fix: `{program()} gpu.list --cuda` checks driver and toolkit; in a container check its runtime"
        )
