"""Tasks of workflow steps, by type and action; each runs one program."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from paddock.console.parameters import Parameters, one_of, parameter
from paddock.gpu import actions
from paddock.gpu.actions import lease_is_held, parse
from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.programs import Finished
from paddock.gpu.render.fields import image_reference

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A program to run: `environ` is added to this process's own, `undo` ends what outlives a program that was ended.

    `keeps` tells that its lease is used on after it succeeded.
    """

    command: Sequence[str]
    stdin: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    undo: Sequence[str] = ()
    keeps: bool = False
    result: Callable[[Finished], Document] = lambda finished: _output(finished)


@dataclass(frozen=True, slots=True)
class Context:
    """Surroundings of a job: `name` is unique on this machine, `owner` is the pid that leases live as long as.

    `cleanup` is unwound when the job ends, unless it keeps what it took. `leases` are the documents of the steps before
    that hold leases.
    """

    folder: Path
    name: str
    owner: int
    cleanup: ExitStack
    leases: Mapping[str, Document] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """Variables with the GPUs and the id of each lease, and those that show a program the GPUs of the only one."""
        result: dict[str, str] = {}
        for step, granted in self.leases.items():
            gpus, id = lease_variables(step)
            result |= {gpus: ",".join(device["uuid"] for device in granted["lease"]["devices"])}
            result |= {id: granted["lease"]["id"]}
        if len(self.leases) == 1:
            (granted,) = self.leases.values()
            result |= {name: value for name, value in granted.get("environment", {}).items() if value is not None}
        return result


def lease_variables(step: str) -> tuple[str, str]:
    """Return the names of the variables that hold the UUIDs of a step's GPUs and the id of its lease."""
    name = step.replace("-", "_")
    return f"GPUS_{name}", f"LEASE_{name}"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One kind of task: `describe` says what is about to happen, `is_valid` whether an earlier result still holds."""

    parameters: type[Parameters]
    prepare: Callable[[Any, Context], ProgramRun]
    describe: Callable[[Any], str]
    is_valid: Callable[[Document], bool] | None = None


_NAME = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"


@dataclass(frozen=True, kw_only=True)
class ContainerRun(Parameters):
    image: str = parameter(..., "the image with its tag", min_length=1)
    name: str | None = parameter(None, "name of the container", pattern=_NAME)
    command: tuple[str, ...] = parameter((), "the program and its arguments, instead of the image's own")
    gpus: int | str | tuple[str, ...] | dict[str, Any] | None = parameter(
        None, 'how many, "all", GPUS_ID of a lease, a list of UUIDs, a request, or the fields Enabled, GPUIDs, All, ...'
    )
    environment: dict[str, str] = parameter({}, "variables")
    volumes: tuple[str, ...] = parameter((), "source:target[:ro]")
    detach: bool = parameter(False, "leave it running, for later steps")

    def __post_init__(self) -> None:
        image_reference(self.image)


@dataclass(frozen=True, kw_only=True)
class ContainerStop(Parameters):
    name: str = parameter(..., "name of the container", pattern=_NAME)
    grace: int = parameter(10, "seconds until it is killed", ge=0)


@dataclass(frozen=True, kw_only=True)
class Cluster(Parameters):
    namespace: str | None = parameter(None, "by default that of the context")
    context: str | None = parameter(None, "context of the kubeconfig; by default its current one")
    kubeconfig: str | None = parameter(None, "the file; by default the one that kubectl finds")


@dataclass(frozen=True, kw_only=True)
class Manifest(Cluster):
    manifest: str | dict[str, Any] | tuple[dict[str, Any], ...] | None = parameter(None, "YAML, or objects")
    file: str | None = parameter(None, "a file of manifests, instead")

    def __post_init__(self) -> None:
        if (self.manifest is None) == (self.file is None):
            raise ValueError("manifest and file\n    expected: one of them")


@dataclass(frozen=True, kw_only=True)
class Wait(Cluster):
    resource: str = parameter(..., "kind/name: pod/trainer", pattern=r"^[a-z][a-z0-9.-]*/[a-z0-9.-]+$")
    condition: str = parameter(..., "condition=Ready, delete, or jsonpath={...}=value", aliases=("for",), min_length=1)
    seconds: float = parameter(300, "seconds to wait, at most", gt=0)


@dataclass(frozen=True, kw_only=True)
class Command(Parameters):
    argv: tuple[str, ...] = parameter(..., "a list: the program and its arguments; no shell reads it", min_length=1)
    environment: dict[str, str] = parameter({}, "variables")


def _gpu(action: actions.Action) -> TaskSpec:
    def prepare(parameters: Any, context: Context) -> ProgramRun:
        values = parameters.values()
        if "owner" in parameters.names() and not values.get("ttl"):
            values.setdefault("owner", context.owner)
        if "leases" in values:
            values["leases"] = [context.variables.get(name, name) for name in values["leases"]]
        return ProgramRun(actions.program(action.name), json.dumps(values), result=_document)

    return TaskSpec(action.parameters, prepare, action.describe, is_valid=action.is_valid)


def _container_run(parameters: ContainerRun, context: Context) -> ProgramRun:
    name = parameters.name or context.name
    command = [_program("docker"), "run", "--rm", "--name", name, *(["--detach"] if parameters.detach else [])]
    arguments, lease = docker_gpus(parameters.gpus, context)
    command += arguments
    for variable in parameters.environment:
        command += ["--env", variable]  # the value travels in the environment, where other users do not see it
    for volume in parameters.volumes:
        command += ["--volume", volume]
    return ProgramRun(
        [*command, parameters.image, *parameters.command],
        environ=parameters.environment,
        undo=["docker", "rm", "--force", name],
        keeps=parameters.detach,
        result=lambda finished: {**_output(finished), "name": name, "lease": lease if parameters.detach else None},
    )


def docker_gpus(
    gpus: int | str | Sequence[str] | Mapping[str, Any] | None, context: Context
) -> tuple[list[str], Document | None]:
    """Return the arguments that give GPUs to `docker run`, and the lease that a number of GPUs takes.

    Raises NoGpu and GpuInputError.
    """
    if gpus is None or gpus == 0:
        return [], None
    from paddock.gpu import inventory
    from paddock.gpu.leases import allocation
    from paddock.gpu.leases.request import Request
    from paddock.gpu.render import render

    request: Any = None
    lease = None
    match gpus:
        case "all":
            pass
        case str():
            held = context.variables.get(gpus)
            if held is None:
                raise GpuInputError(f"gpus is {gpus}, which is released\n    expected: a lease that is held")
            uuids = tuple(held.split(","))
            request = Request(count=len(uuids), uuids=uuids)
        case int():
            lease = allocation.allocate(Request(count=gpus), owner=context.owner)["lease"]
            context.cleanup.callback(_release, lease["id"])
            uuids = tuple(device["uuid"] for device in lease["devices"])
            request = Request(count=gpus, uuids=uuids)
        case Mapping():
            request = gpus
        case _:
            request = Request(count=len(gpus), uuids=tuple(gpus))
    return shlex.split(render("docker", inventory.inventory(), request, environ=os.environ).files[0].text), lease


def _release(id: str) -> None:
    from paddock.gpu.leases.manager import Leases

    with suppress(GpuInputError):  # a later step, or a user, has released it
        Leases().release(id)


def _stop(parameters: ContainerStop, _: Context) -> ProgramRun:
    return ProgramRun([_program("docker"), "stop", "--time", str(parameters.grace), parameters.name])


def _kubectl(parameters: Cluster, *words: str) -> list[str]:
    command = [_program("kubectl")]
    for flag in ("kubeconfig", "context", "namespace"):
        if value := getattr(parameters, flag):
            command += [f"--{flag}", value]
    return [*command, *words]


def _apply(parameters: Manifest, context: Context) -> ProgramRun:
    command = _kubectl(parameters, "apply", "--server-side", "--field-manager=paddock", "--output=name", "--filename=-")
    return ProgramRun(command, _manifest(parameters, context.folder), result=_objects)


def _delete(parameters: Manifest, context: Context) -> ProgramRun:
    command = _kubectl(parameters, "delete", "--ignore-not-found", "--output=name", "--filename=-")
    return ProgramRun(command, _manifest(parameters, context.folder), result=_objects)


def _wait(parameters: Wait, _: Context) -> ProgramRun:
    flags = (f"--for={parameters.condition}", f"--timeout={parameters.seconds:g}s")
    return ProgramRun(_kubectl(parameters, "wait", parameters.resource, *flags))


def _manifest(parameters: Manifest, folder: Path) -> str:
    if parameters.file is not None:
        try:
            return (folder / parameters.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GpuInputError(f"cannot read {folder / parameters.file}: {error}\n    expected: manifests") from None
    if isinstance(parameters.manifest, str):
        return parameters.manifest
    objects = [parameters.manifest] if isinstance(parameters.manifest, dict) else list(parameters.manifest or ())
    return "\n---\n".join(json.dumps(item) for item in objects)


def _named(parameters: Manifest) -> str:
    """Name the objects of the manifests, as far as possible without the cluster."""
    if parameters.file is not None:
        return parameters.file
    import yaml

    try:
        manifest = parameters.manifest
        items = list(yaml.safe_load_all(manifest)) if isinstance(manifest, str) else manifest
    except yaml.YAMLError as error:
        raise GpuInputError(f"the manifest is not YAML: {getattr(error, 'problem', error)}") from None
    objects = [items] if isinstance(items, dict) else list(items or ())
    names = [
        f"{item.get('kind')} {(item.get('metadata') or {}).get('name')}" for item in objects if isinstance(item, dict)
    ]
    return ", ".join(names) or "nothing"


def _command(parameters: Command, context: Context) -> ProgramRun:
    return ProgramRun(parameters.argv, environ={**context.variables, **parameters.environment})


TYPES: Mapping[str, Mapping[str, TaskSpec]] = {
    "gpu": {name: _gpu(action) for name, action in actions.ACTIONS.items()},
    "container": {
        "run": TaskSpec(
            ContainerRun,
            _container_run,
            lambda p: f"run {' '.join((p.image, *p.command))} in a container",
            is_valid=lease_is_held,
        ),
        "stop": TaskSpec(ContainerStop, _stop, lambda p: f"stop the container {p.name}"),
    },
    "kubernetes": {
        "apply": TaskSpec(Manifest, _apply, lambda p: f"apply {_named(p)}"),
        "delete": TaskSpec(Manifest, _delete, lambda p: f"delete {_named(p)}"),
        "wait": TaskSpec(Wait, _wait, lambda p: f"wait until {p.resource} is {p.condition}, at most {p.seconds:g} s"),
    },
    "command": {"run": TaskSpec(Command, _command, lambda p: f"run {shlex.join(p.argv)}")},
}


def default_action(type: str) -> str | None:
    """Return the action of a type that has only one."""
    actions = TYPES.get(type, {})
    return next(iter(actions)) if len(actions) == 1 else None


def find(type: str, action: str, where: str) -> TaskSpec:
    """Raises GpuInputError."""
    if type not in TYPES:
        raise GpuInputError(f"{where}: there is no task type {type!r}\n    expected: {one_of(type, list(TYPES))}")
    if action not in TYPES[type]:
        expected = one_of(action, list(TYPES[type]))
        raise GpuInputError(f"{where}: {type} has no action {action!r}\n    expected: {expected}")
    return TYPES[type][action]


def parsed(spec: TaskSpec, values: Mapping[str, Any], where: str) -> Parameters:
    """Raises GpuInputError."""
    return cast("Parameters", parse(spec.parameters, values, where, prefix="parameters"))


def _output(finished: Finished) -> Document:
    return {"exit_code": finished.code, "output": finished.output, "errors": finished.errors}


def _objects(finished: Finished) -> Document:
    return {**_output(finished), "objects": finished.output.split()}


def _document(finished: Finished) -> Document:
    try:
        document: Document = json.loads(finished.output)
    except json.JSONDecodeError:
        return _output(finished)
    return {**document, "output": finished.errors} if "exit_code" in document else document


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise GpuInputError(f"there is no {name} here\n    expected: it on PATH\n    fix: install it")
    return os.fspath(path)
