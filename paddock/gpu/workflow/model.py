"""A workflow: steps with dependencies, each a task of a type, read from YAML or JSON and checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from paddock.console.parameters import Parameters, one_of
from paddock.duration import NoDuration, Seconds
from paddock.gpu.errors import GpuInputError
from paddock.gpu.workflow.tasks import TaskSpec, default_action, find, lease_variables, parsed

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_WORKFLOW = {"id": "id", "name": "name", "steps": "steps"}
_STEP = {
    "id": "id",
    "name": "name",
    "task": "task",
    "type": "type",
    "tasktype": "type",
    "action": "action",
    "parameters": "parameters",
    "payload": "parameters",
    "dependson": "depends_on",
    "timeout": "timeout",
    "retry": "retry",
}
_TASK = {key: _STEP[key] for key in ("type", "tasktype", "action", "parameters", "payload")}
_RETRY = {"times": "times", "backoff": "backoff"}


@dataclass(frozen=True, slots=True)
class Task:
    """`written` is what the file says, `parameters` what is made of it."""

    type: str
    action: str
    written: Mapping[str, Any]
    spec: TaskSpec
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Retry:
    """`times` more after the first; before the first of them `backoff` seconds, doubled each time, at most a minute."""

    times: int = 0
    backoff: float = 1.0

    def delay(self, attempt: int) -> float:
        """Seconds after that attempt, the first of which is 1."""
        return float(min(self.backoff * 2 ** (attempt - 1), 60))


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """`timeout` is in seconds, of one attempt."""

    id: str
    name: str
    task: Task
    depends_on: tuple[str, ...] = ()
    timeout: float | None = None
    retry: Retry = Retry()


@dataclass(frozen=True, slots=True)
class Workflow:
    """`folder` is where relative files of its parameters lie."""

    id: str
    name: str
    steps: tuple[WorkflowStep, ...]
    folder: Path

    def graph(self) -> TopologicalSorter[str]:
        return TopologicalSorter({step.id: step.depends_on for step in self.steps})

    def waves(self) -> list[list[WorkflowStep]]:
        """Return the steps in waves, in order; the steps of one wave are independent."""
        steps = {step.id: step for step in self.steps}
        graph, waves = self.graph(), []
        graph.prepare()
        while ready := graph.get_ready():
            waves.append([steps[id] for id in sorted(ready, key=list(steps).index)])
            graph.done(*ready)
        return waves

    def before(self, step: WorkflowStep) -> list[WorkflowStep]:
        """Return all steps that end before this one starts, in the order of the file."""
        ids, waiting = set[str](), list(step.depends_on)
        while waiting:
            id = waiting.pop()
            if id not in ids:
                ids.add(id)
                waiting += next(other for other in self.steps if other.id == id).depends_on
        return [other for other in self.steps if other.id in ids]


def load(path: Path) -> Workflow:
    """Read a file, YAML or JSON. Raises GpuInputError."""
    from paddock.validation import read_yaml

    return parse(read_yaml(path, "a workflow", GpuInputError), str(path), path.parent, path.stem)


def parse(document: Any, source: str, folder: Path = Path(), id: str = "workflow") -> Workflow:
    """`id` is taken where the workflow has none. Raises GpuInputError."""
    about = _fields(document, _WORKFLOW, source, "a workflow")
    items = about.get("steps")
    if not isinstance(items, list) or not items:
        raise GpuInputError(f"{source}: it has no steps\n    expected: a list of one step or more")
    steps = tuple(_step(item, f"{source}: step {number}", number) for number, item in enumerate(items, 1))
    ids = [step.id for step in steps]
    names = [lease_variables(id) for id in ids]
    twice = [id for id, name in zip(ids, names, strict=True) if names.count(name) > 1]
    if twice:
        raise GpuInputError(f"{source}: two steps are called {twice[0]!r}\n    expected: each id once")
    id = _id(about.get("id", id), source)
    workflow = Workflow(id, _text(about.get("name", id), f"{source}: name"), steps, folder)
    _check_order(workflow, source)
    for step in steps:
        _check_leases(step, workflow, source)
    return workflow


def _step(item: Any, where: str, number: int) -> WorkflowStep:
    about = _fields(item, _STEP, where, "a step")
    id = _id(about.get("id", f"step-{number}"), where)
    where = f"{where.rpartition(':')[0]}: step {id!r}"
    if "task" in about:
        both = {"type", "action", "parameters"} & about.keys()
        if both:
            raise GpuInputError(
                f"{where}: {sorted(both)[0]} and task are both given\n    expected: all of the task in one place"
            )
        about |= _fields(about["task"], _TASK, f"{where}: task", "a task")
    parameters = about.get("parameters") or {}
    if not isinstance(parameters, dict) or not all(isinstance(key, str) for key in parameters):
        raise GpuInputError(f"{where}: parameters is {_short(parameters)}\n    expected: names and values")
    if "type" not in about:
        raise GpuInputError(f"{where}: it has no type\n    expected: gpu, container, kubernetes or command")
    type = _text(about["type"], f"{where}: type").lower()
    # The older connector has the action among the parameters.
    parameters = dict(parameters)
    inner = parameters.pop("action", None)
    action = about.get("action", inner if inner is not None else default_action(type))
    if action is None:
        raise GpuInputError(f"{where}: it has no action\n    expected: what the {type} task is to do")
    depends_on = about.get("depends_on") or []
    depends_on = [depends_on] if isinstance(depends_on, str) else depends_on
    if not isinstance(depends_on, list) or not all(isinstance(id, str) for id in depends_on):
        raise GpuInputError(f"{where}: depends_on is {_short(depends_on)}\n    expected: a list of ids of steps")
    action = _text(action, f"{where}: action")
    spec = find(type, action, where)
    return WorkflowStep(
        id,
        _text(about.get("name", id), f"{where}: name"),
        Task(type, action, parameters, spec, parsed(spec, parameters, where)),
        tuple(dict.fromkeys(depends_on)),
        _seconds(about.get("timeout"), f"{where}: timeout"),
        _retry(about.get("retry"), f"{where}: retry"),
    )


def _check_order(workflow: Workflow, source: str) -> None:
    ids = [step.id for step in workflow.steps]
    for step in workflow.steps:
        for needed in step.depends_on:
            if needed not in ids:
                candidates = [id for id in ids if id != step.id]
                raise GpuInputError(
                    f"{source}: step {step.id!r} depends on {needed!r}, which there is not\n"
                    f"    expected: {one_of(needed, candidates) if candidates else 'nothing: it is the only step'}"
                )
    try:
        workflow.graph().prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise GpuInputError(
            f"{source}: steps wait for each other: {circle}\n    expected: an order in which each can run"
            "\n    fix: take one of these out of depends_on"
        ) from None


def _check_leases(step: WorkflowStep, workflow: Workflow, source: str) -> None:
    """Check that the variables which a step names are of leases that are taken before. Raises GpuInputError."""
    gpus = getattr(step.task.parameters, "gpus", None)
    named = [gpus] if isinstance(gpus, str) and gpus != "all" else []
    named += [name for name in getattr(step.task.parameters, "leases", ()) if name.startswith("LEASE_")]
    takers = [other.id for other in workflow.steps if (other.task.type, other.task.action) == ("gpu", "allocate")]
    before = {other.id for other in workflow.before(step)}
    known = [name for id in takers if id in before for name in lease_variables(id)]
    for name in named:
        if name not in known:
            late = [id for id in takers if name in lease_variables(id)]
            raise GpuInputError(
                f"{source}: step {step.id!r}: {name!r} is not of a lease that a step before it takes\n    expected: "
                + (one_of(name, known) if known else 'a number, "all", UUIDs, or GPUS_ID of a gpu step that allocates')
                + (f"\n    fix: add {late[0]} to depends_on" if late else "")
            )


def _fields(fields: Any, spellings: Mapping[str, str], where: str, kind: str) -> dict[str, Any]:
    """Return the fields by their own names, in any spelling: depends_on, dependsOn, DependsOn."""
    if not isinstance(fields, dict):
        raise GpuInputError(f"{where}: {_short(fields)} is not {kind}\n    expected: names and values")
    about: dict[str, Any] = {}
    for key, value in fields.items():
        name = spellings.get(str(key).replace("_", "").replace("-", "").lower())
        if name is None:
            names = list(dict.fromkeys(spellings.values()))
            raise GpuInputError(f"{where}: {kind} has no {key!r}\n    expected: {one_of(str(key), names)}")
        if name in about:
            raise GpuInputError(f"{where}: {name} stands there twice\n    expected: each once")
        about[name] = value
    return about


def _retry(value: Any, where: str) -> Retry:
    if value is None:
        return Retry()
    about = {"times": value} if isinstance(value, int) else _fields(value, _RETRY, where, "a retry")
    times = about.get("times", 1)
    if not isinstance(times, int) or isinstance(times, bool) or not 0 <= times <= 100:
        raise GpuInputError(f"{where} is {_short(times)}\n    expected: how many times more, 0 to 100")
    return Retry(times, _seconds(about.get("backoff"), f"{where}.backoff") or 1.0)


def _seconds(value: Any, where: str) -> float | None:
    if value is None:
        return None
    try:
        seconds = Seconds(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except (NoDuration, OverflowError):
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise GpuInputError(f"{where} is {_short(value)}\n    expected: seconds, more than 0, or 30s, 5m, 2h")
    return float(seconds)


def _id(value: Any, where: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise GpuInputError(f"{where}: id is {_short(value)}\n    expected: letters, digits, - and _, at most 63")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GpuInputError(f"{where} is {_short(value)}\n    expected: text")
    return value.strip()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
