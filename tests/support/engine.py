"""What a plan and the real engine say of the same stack, side by side."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.lab.control_plane import programs, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabInputError
from paddock.lab.kube.client import Api
from paddock.lab.progress import Progress
from paddock.lab.providers.diff import DEFAULTS
from paddock.lab.stack.engine import Programs, State
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.resource_types import RELEASE, SECRET
from paddock.plan.engine.values import UNKNOWN, Ref, Secret


def lab_in(folder: Path) -> Iterator[Lab]:
    """A control plane, while it is needed; skips where it or the engine cannot be."""
    absent = sorted(set(programs.PROGRAMS) - set(programs.locate()))
    if absent:
        pytest.skip(f"the lab's programs are not here: {', '.join(absent)} (on PATH, or in PADDOCK_LAB_BIN)")
    try:
        found = Programs.find()
    except LabInputError as error:
        pytest.skip(str(error))
    if found.kubernetes is None:
        pytest.skip("pulumi-resource-kubernetes is not there: pulumi plugin install resource kubernetes")
    lab, _ = servers.up(folder, progress=Progress(quiet=True))
    try:
        yield lab
    finally:
        servers.down(folder, keep=True)


def releases(api: Api) -> dict[str, dict[str, Any]]:
    """Helm releases by name, as Helm keeps them: the revision that is deployed."""
    found = {}
    for secret in api.list("v1", "Secret", labelSelector="owner=helm,status=deployed"):
        kept = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
        found[kept["name"]] = kept
    return found


def short(urn: str) -> str:
    type_, _, name = urn.split("::", 2)[2].partition("::")
    return f"{type_.rpartition(':')[2]}::{name}"


def is_default_provider(state: State) -> bool:
    return state.type.startswith("pulumi:providers:") and state.urn.rpartition("::")[2].startswith("default")


def differences(
    planned: Graph, engine: Mapping[str, State], *, values: bool = True, shown: Graph | None = None
) -> Iterator[str]:
    """Where the engine sees something else than the plan, resource by resource.

    Not told, because a plan cannot know them: names that a provider makes up, and what is made of them; what a provider
    fills in; what is inside a secret; and, of AWS, what `shown`, the plan of a preview, says is not known yet.
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
            pairs |= _inputs(resource, state, made_up, shown.resources[urn] if shown else resource)
        for what, (plan, found) in pairs.items():
            if plan != found:
                yield f"{short(urn)}: {what}: planned {plan!r}, the engine has {found!r}"


def _behind(resource: Resource) -> dict[str, tuple[str, ...]]:
    return {key: urns for key, urns in resource.property_dependencies.items() if urns}


def _provider(reference: str) -> str:
    """Without the id, which is made up; nothing for the engine itself, which reads stack references."""
    urn = reference.rpartition("::")[0]
    return "" if "::pulumi:providers:pulumi::" in urn else urn


def _inputs(resource: Resource, state: State, made_up: set[str], shown: Resource) -> dict[str, tuple[Any, Any]]:
    found = {key: value for key, value in state.inputs.items() if not key.startswith("__")}
    plan = dict(resource.inputs)
    for key in state.inputs.get(DEFAULTS, ()):
        del found[key]
    if resource.type.startswith("pulumi:providers:"):
        found.pop("version", None)
    if resource.type == RELEASE:
        plan.pop("compat", None)  # tells the provider which SDK asks, and is not kept
        found = {key: value for key, value in found.items() if key in plan or value not in (False, "", "true")}
    if resource.type == SECRET and "data" in found:
        plan["data"] = plan.pop("stringData")
    ours = resource.type.startswith("kubernetes:")
    pairs = {}
    for key in sorted({*plan, *found}):
        said, is_ = _comparable(plan.get(key)), _comparable(_forget(found.get(key), made_up))
        told = said if ours else _comparable(shown.inputs.get(key))
        pairs[f"input {key}"] = (said, _known(is_, said, told))
    return pairs


def _known(found: Any, planned: Any, shown: Any) -> Any:
    """What was found, with what the plan says in each place where a preview knows nothing."""
    match shown:
        case str() if shown == UNKNOWN:
            return planned
        case Mapping() if isinstance(found, Mapping) and isinstance(planned, Mapping):
            return {key: _known(item, planned.get(key), shown.get(key)) for key, item in found.items()}
        case list() if (
            isinstance(found, list) and isinstance(planned, list) and len(found) == len(planned) == len(shown)
        ):
            return [_known(*items) for items in zip(found, planned, shown, strict=True)]
        case _:
            return found


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
