"""What the steps of a workflow can do, by type and action; each is one program that is run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, model_validator

from paddock.gpu.actions import registry
from paddock.gpu.actions.handlers import holds_lease
from paddock.gpu.errors import GpuInputError
from paddock.gpu.host.programs import Finished
from paddock.gpu.parameter import Parameters, did_you_mean, parse

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """`environ` is added to this process's own. `undo` ends what outlives the program, when it had to be ended.

    `lease` is the id of one that was taken for it; `keeps` says that it is used on after the program's good end.
    """

    command: Sequence[str]
    stdin: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    undo: Sequence[str] = ()
    lease: str | None = None
    keeps: bool = False
    answer: Callable[[Finished], Document] = lambda done: _answer(done)


@dataclass(frozen=True, slots=True)
class Context:
    """`name` is one that nothing else of this machine has; `owner` is the pid that leases live as long as."""

    folder: Path
    name: str
    owner: int


@dataclass(frozen=True, slots=True)
class Doing:
    """`would` says in words what is about to be done; `holds` is that of an action on GPUs."""

    parameters: type[Parameters]
    prepare: Callable[[Any, Context], Job]
    would: Callable[[Any], str]
    holds: Callable[[Document], bool] | None = None


class ContainerRun(Parameters):
    image: str = Field(min_length=1, description="With its tag.")
    name: str | None = Field(None, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", description="Of the container.")
    command: tuple[str, ...] = Field((), description="The program and its arguments, instead of the image's own.")
    gpus: int | str | tuple[str, ...] | dict[str, Any] | None = Field(
        None, description='How many, "all", a list of UUIDs, a request, or the fields Enabled, GPUIDs, All, ...'
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Variables.")
    volumes: tuple[str, ...] = Field((), description="source:target[:ro].")
    detach: bool = Field(False, description="Leave it running, for later steps.")


class ContainerStop(Parameters):
    name: str = Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", description="Of the container.")
    grace: int = Field(10, ge=0, description="Seconds until it is killed.")


class Cluster(Parameters):
    namespace: str | None = Field(None, description="Else that of the context.")
    context: str | None = Field(None, description="Of the kubeconfig. Else its current one.")
    kubeconfig: str | None = Field(None, description="The file. Else as kubectl finds it.")


class Manifest(Cluster):
    manifest: str | dict[str, Any] | tuple[dict[str, Any], ...] | None = Field(None, description="YAML, or objects.")
    file: str | None = Field(None, description="A file of manifests, instead.")

    @model_validator(mode="after")
    def _one(self) -> Manifest:
        if (self.manifest is None) == (self.file is None):
            raise ValueError("manifest and file\n    expected: one of them")
        return self


class Wait(Cluster):
    resource: str = Field(pattern=r"^[a-z][a-z0-9.-]*/[a-z0-9.-]+$", description="kind/name: pod/trainer.")
    condition: str = Field(
        min_length=1,
        description="condition=Ready, delete, or jsonpath={...}=value.",
        validation_alias=AliasChoices("for", "condition"),
    )
    seconds: float = Field(300, gt=0, description="To wait at most.")


class Command(Parameters):
    argv: tuple[str, ...] = Field(min_length=1, description="A list: the program and its arguments. No shell reads it.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables.")


def _gpu(action: registry.Action) -> Doing:
    def prepare(asked: Any, context: Context) -> Job:
        given = asked.model_dump(exclude_unset=True)
        if "owner" in action.parameters.model_fields and not given.get("ttl"):
            given.setdefault("owner", context.owner)
        return Job(registry.program(action.name), json.dumps(given), answer=lambda done: _document(done))

    return Doing(action.parameters, prepare, action.would, holds=action.holds)


def _container_run(asked: ContainerRun, context: Context) -> Job:
    name = asked.name or context.name
    command = [_program("docker"), "run", "--rm", "--name", name, *(["--detach"] if asked.detach else [])]
    arguments, lease = docker_gpus(asked.gpus, context.owner)
    command += arguments
    for variable in asked.environment:
        command += ["--env", variable]  # the value travels in the environment, where other users do not see it
    for volume in asked.volumes:
        command += ["--volume", volume]
    return Job(
        [*command, asked.image, *asked.command],
        environ=asked.environment,
        undo=["docker", "rm", "--force", name],
        lease=lease["id"] if lease else None,
        keeps=asked.detach,
        answer=lambda done: {**_answer(done), "name": name, "lease": lease if asked.detach else None},
    )


def docker_gpus(
    gpus: int | str | Sequence[str] | Mapping[str, Any] | None, owner: int
) -> tuple[list[str], Document | None]:
    """The arguments that give GPUs to `docker run`, and the lease that a number takes until the owner ends.

    Raises NoGpu and GpuInputError.
    """
    if gpus is None or gpus == 0:
        return [], None
    from paddock.gpu import inventory as detect
    from paddock.gpu.leases import allocation
    from paddock.gpu.leases.request import Request
    from paddock.gpu.render import render

    wanted: Any = None
    lease = None
    match gpus:
        case "all":
            pass
        case str():
            raise GpuInputError(f'gpus is {gpus!r}\n    expected: a number, "all", or a list of UUIDs')
        case int():
            lease = allocation.allocate(Request(count=gpus), owner=owner)["lease"]
            uuids = tuple(device["uuid"] for device in lease["devices"])
            wanted = Request(count=gpus, uuids=uuids)
        case Mapping():
            wanted = gpus
        case _:
            wanted = Request(count=len(gpus), uuids=tuple(gpus))
    return shlex.split(render("docker", detect.inventory(), wanted, environ=os.environ).files[0].text), lease


def _stop(asked: ContainerStop, _: Context) -> Job:
    return Job([_program("docker"), "stop", "--time", str(asked.grace), asked.name])


def _kubectl(asked: Cluster, *words: str) -> list[str]:
    command = [_program("kubectl")]
    for flag in ("kubeconfig", "context", "namespace"):
        if value := getattr(asked, flag):
            command += [f"--{flag}", value]
    return [*command, *words]


def _apply(asked: Manifest, context: Context) -> Job:
    command = _kubectl(asked, "apply", "--server-side", "--field-manager=paddock", "--output=name", "--filename=-")
    return Job(command, _manifest(asked, context.folder), answer=_objects)


def _delete(asked: Manifest, context: Context) -> Job:
    command = _kubectl(asked, "delete", "--ignore-not-found", "--output=name", "--filename=-")
    return Job(command, _manifest(asked, context.folder), answer=_objects)


def _wait(asked: Wait, _: Context) -> Job:
    return Job(_kubectl(asked, "wait", asked.resource, f"--for={asked.condition}", f"--timeout={asked.seconds:g}s"))


def _manifest(asked: Manifest, folder: Path) -> str:
    if asked.file is not None:
        try:
            return (folder / asked.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GpuInputError(f"cannot read {folder / asked.file}: {error}\n    expected: manifests") from None
    if isinstance(asked.manifest, str):
        return asked.manifest
    objects = [asked.manifest] if isinstance(asked.manifest, dict) else list(asked.manifest or ())
    return "\n---\n".join(json.dumps(one) for one in objects)


def _named(asked: Manifest) -> str:
    """What the manifests are, as far as that is known without the cluster."""
    if asked.file is not None:
        return asked.file
    import yaml

    try:
        found = list(yaml.safe_load_all(asked.manifest)) if isinstance(asked.manifest, str) else asked.manifest
    except yaml.YAMLError as error:
        raise GpuInputError(f"the manifest is not YAML: {getattr(error, 'problem', error)}") from None
    objects = [found] if isinstance(found, dict) else list(found or ())
    names = [f"{one.get('kind')} {(one.get('metadata') or {}).get('name')}" for one in objects if isinstance(one, dict)]
    return ", ".join(names) or "nothing"


def _command(asked: Command, _: Context) -> Job:
    return Job(asked.argv, environ=asked.environment)


TYPES: Mapping[str, Mapping[str, Doing]] = {
    "gpu": {name: _gpu(action) for name, action in registry.ACTIONS.items()},
    "container": {
        "run": Doing(
            ContainerRun,
            _container_run,
            lambda p: f"run {' '.join((p.image, *p.command))} in a container",
            holds=holds_lease,
        ),
        "stop": Doing(ContainerStop, _stop, lambda p: f"stop the container {p.name}"),
    },
    "kubernetes": {
        "apply": Doing(Manifest, _apply, lambda p: f"apply {_named(p)}"),
        "delete": Doing(Manifest, _delete, lambda p: f"delete {_named(p)}"),
        "wait": Doing(Wait, _wait, lambda p: f"wait until {p.resource} is {p.condition}, at most {p.seconds:g} s"),
    },
    "command": {"run": Doing(Command, _command, lambda p: f"run {shlex.join(p.argv)}")},
}


def default_action(type: str) -> str | None:
    """Of a type that has one action alone."""
    known = TYPES.get(type, {})
    return next(iter(known)) if len(known) == 1 else None


def find(type: str, action: str, where: str) -> Doing:
    """Raises GpuInputError."""
    if type not in TYPES:
        raise GpuInputError(f"{where}: there is no task type {type!r}\n    expected: {did_you_mean(type, list(TYPES))}")
    if action not in TYPES[type]:
        expected = did_you_mean(action, list(TYPES[type]))
        raise GpuInputError(f"{where}: {type} has no action {action!r}\n    expected: {expected}")
    return TYPES[type][action]


def check(
    type: str, action: str, given: Mapping[str, Any], where: str, later: Collection[str] = ()
) -> Parameters | None:
    """The parameters; None while references stand in `later`. Raises GpuInputError."""
    return parse(find(type, action, where).parameters, given, where, later=later, prefix="parameters")


def _answer(done: Finished) -> Document:
    return {"exit_code": done.code, "output": done.output, "errors": done.errors}


def _objects(done: Finished) -> Document:
    return {**_answer(done), "objects": done.output.split()}


def _document(done: Finished) -> Document:
    try:
        found: Document = json.loads(done.output)
    except json.JSONDecodeError:
        return _answer(done)
    return {**found, "output": done.errors} if "exit_code" in found else found


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise GpuInputError(f"there is no {name} here\n    expected: it on PATH\n    fix: install it")
    return os.fspath(path)
