"""A plan and the real engine on the same stack, side by side."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.kubernetes.client import Api
from paddock.lab import processes
from paddock.lab.control_plane import programs, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabInputError
from paddock.lab.providers.diff import DEFAULTS
from paddock.lab.stack.engine import YES, Engine, EngineError, Programs
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION, RELEASE, SECRET
from paddock.plan.engine.values import UNKNOWN, Ref, Secret
from paddock.pulumi_cli.stack import Run
from tests.support.engine_state import State


def need_control_plane() -> None:
    """Skips where the programs of a control plane are not here."""
    if absent := sorted(set(programs.PROGRAMS) - set(programs.locate())):
        pytest.skip(f"the lab's programs are not here: {', '.join(absent)} (on PATH, or in PADDOCK_LAB_BIN)")


def need_engine(*, kubernetes: bool = False) -> Programs:
    """Return the engine's programs; skips where they, or the provider for Kubernetes that is asked for, are not."""
    try:
        found = Programs.find()
    except LabInputError as error:
        pytest.skip(f"the lab's programs are not here: {error}")
    if kubernetes and found.kubernetes is None:
        pytest.skip("pulumi-resource-kubernetes is not there: pulumi plugin install resource kubernetes")
    return found


def lab_in(folder: Path) -> Iterator[Lab]:
    """Yield a control plane, while it is needed; skips where it or the engine cannot be."""
    need_control_plane()
    need_engine(kubernetes=True)
    lab, _ = servers.up(folder, progress=Progress(quiet=True))
    try:
        yield lab
    finally:
        servers.down(folder, keep=True)


def releases(api: Api) -> dict[str, dict[str, Any]]:
    """Helm releases by name, as Helm keeps them: the revision that is deployed."""
    decoded = {}
    for secret in api.list("v1", "Secret", labelSelector="owner=helm,status=deployed"):
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
        decoded[release["name"]] = release
    return decoded


def export(engine: Engine) -> dict[str, State]:
    """Return everything in the stack, by URN. Secrets stay encrypted."""
    resources = json.loads(engine.exported())["deployment"].get("resources") or []
    return {resource["urn"]: State.of(resource) for resource in resources}


def outputs(engine: Engine, *flags: str) -> dict[str, Any]:
    """Return the outputs of the stack; secrets with `--show-secrets`."""
    decoded: dict[str, Any] = json.loads(engine.command("stack", "output", "--json", *flags))
    return decoded


def destroy(engine: Engine, *, protected: bool = False) -> Run:
    """Delete every resource; `protected` includes protected ones."""
    run = engine.run("destroy", *YES, *(["--ignore-protect"] if protected else []))
    if remaining := len(export(engine)):  # the engine calls it a success when it is interrupted
        raise EngineError(f"pulumi destroy of {engine.stack} was interrupted: {remaining} resources are left", run)
    return run


def interrupt(engine: Engine) -> None:
    """Interrupt the current run: operations in progress are finished, the rest is not begun."""
    for process in processes.marked(engine.state)[:1]:  # the CLI, which has started all others
        os.kill(process.pid, signal.SIGINT)


def kill(engine: Engine) -> None:
    """Kill the current run at once, as a power failure does."""
    for process in processes.marked(engine.state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def whole_destroy(engine: Engine) -> Run:
    """Delete every resource of the stack, protected ones too."""
    written = yaml.safe_load(engine.stack_file.read_text(encoding="utf-8"))["config"]
    config = {
        key: value for key, value in written.items() if not (isinstance(value, dict) and set(value) == {"secure"})
    }
    cluster = config["paddock:fleet"].setdefault("cluster", {})
    if not {"existing", "kubeconfig"} & set(cluster) and cluster.get("deletionProtection", True):
        cluster["deletionProtection"] = False
        engine.configure(config)
        engine.up()
    return destroy(engine, protected=True)


def deployment(engine: Engine) -> dict[str, Any]:
    """Return the state on the disk, also while a run is under way, without asking the engine."""
    path = engine.state / "backend/.pulumi/stacks/paddock" / f"{engine.stack}.json"
    latest: dict[str, Any] = json.loads(path.read_text())["checkpoint"]["latest"]
    return latest


def previewed(text: str) -> dict[str, tuple[str, State]]:
    """Return operation and state afterwards of each resource, from the one document of `pulumi preview --json`."""
    steps = json.loads(text[text.index("{") :])["steps"]
    return {step["urn"]: (step["op"], State.of(step["newState"])) for step in steps}


def short(urn: str) -> str:
    type_, _, name = urn.split("::", 2)[2].partition("::")
    return f"{type_.rpartition(':')[2]}::{name}"


def is_default_provider(state: State) -> bool:
    return state.type.startswith("pulumi:providers:") and state.urn.rpartition("::")[2].startswith("default")


def differences(
    planned: Graph, engine: Mapping[str, State], *, values: bool = True, preview: Graph | None = None
) -> Iterator[str]:
    """Differences between the engine and the plan, resource by resource.

    Not told, because a plan cannot know them: names that a provider makes up, and what is made of them; what a provider
    fills in; what is inside a secret or a chart; and, of AWS, what `preview`, the plan of a preview, does not know yet.
    """
    made_up = {str(state.inputs[key]) for state in engine.values() for key in state.inputs.get(DEFAULTS, ())}
    for urn, resource in planned.resources.items():
        state = engine[urn]
        pairs: dict[str, tuple[Any, Any]] = {
            "type": (resource.type, state.type),
            "parent": (resource.parent, state.parent),
            "custom": (resource.custom, state.custom),
            "protect": (resource.protect, state.protect),
            "ignoreChanges": (sorted(resource.ignore_changes), sorted(state.ignore_changes)),
            "dependencies": (resource.dependencies, state.dependencies),
            "propertyDependencies": (_behind(resource), state.property_dependencies),
            "provider": (_provider(resource.provider), _provider(state.provider)),
        }
        if values and resource.custom:
            pairs |= _inputs(resource, state, made_up, preview.resources[urn] if preview else resource)
        for subject, (plan, actual) in pairs.items():
            if plan != actual:
                yield f"{short(urn)}: {subject}: planned {plan!r}, the engine has {actual!r}"


def _behind(resource: Resource) -> dict[str, tuple[str, ...]]:
    return {key: urns for key, urns in resource.property_dependencies.items() if urns}


def _provider(reference: str) -> str:
    """Without the id, which is made up; nothing for the engine itself, which reads stack references."""
    urn = reference.rpartition("::")[0]
    return "" if "::pulumi:providers:pulumi::" in urn else urn


def _inputs(resource: Resource, state: State, made_up: set[str], preview: Resource) -> dict[str, tuple[Any, Any]]:
    actual = {key: value for key, value in state.inputs.items() if not key.startswith("__")}
    plan = dict(resource.inputs)
    for key in state.inputs.get(DEFAULTS, ()):
        del actual[key]
    if resource.type.startswith("pulumi:providers:"):
        actual.pop("version", None)
    if resource.type == RELEASE:
        plan.pop("compat", None)  # tells the provider which SDK asks, and is not kept
        actual = {key: value for key, value in actual.items() if key in plan or value not in (False, "", "true")}
    if resource.type == CUSTOM_RESOURCE_DEFINITION:
        plan["spec"] = actual["spec"]
    if resource.type == SECRET and "data" in actual:
        plan["data"] = plan.pop("stringData")
    kubernetes = resource.type.startswith("kubernetes:")
    pairs = {}
    for key in sorted({*plan, *actual}):
        expected, is_ = _comparable(plan.get(key)), _comparable(_forget(actual.get(key), made_up))
        previewed = expected if kubernetes else _comparable(preview.inputs.get(key))
        pairs[f"input {key}"] = (expected, _with_planned(is_, expected, previewed))
    return pairs


def _with_planned(actual: Any, planned: Any, preview: Any) -> Any:
    """Return the actual value, with the plan's in each place that a preview leaves unknown."""
    match preview:
        case str() if preview == UNKNOWN:
            return planned
        case Mapping() if isinstance(actual, Mapping) and isinstance(planned, Mapping):
            return {key: _with_planned(item, planned.get(key), preview.get(key)) for key, item in actual.items()}
        case list() if (
            isinstance(actual, list) and isinstance(planned, list) and len(actual) == len(planned) == len(preview)
        ):
            return [_with_planned(*items) for items in zip(actual, planned, preview, strict=True)]
        case _:
            return actual


def _forget(value: Any, made_up: set[str]) -> Any:
    return UNKNOWN if isinstance(value, str) and any(name in value for name in made_up) else value


def _comparable(value: Any) -> Any:
    match value:
        case Secret():
            return Secret("")
        case Ref(urn=urn):
            return urn
        case Mapping():
            return {key: _comparable(item) for key, item in value.items()}
        case list() | tuple():
            return [_comparable(item) for item in value]
        case _:
            return value
