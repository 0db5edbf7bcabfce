"""The stack of a lab: the user's own with a few settings changed that lead out of this machine, and its `pulumi up`.

The user's stack file is only read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paddock.console.progress import Progress
from paddock.fleet import KubeconfigCluster, Stack, parse
from paddock.fleet.model.github import IN_CONFIG
from paddock.fleet.stackfile.configuration import CREDENTIALS, FLEET, LAYERS
from paddock.lab.control_plane import state
from paddock.lab.control_plane.certificates import rsa_key
from paddock.lab.control_plane.servers import Lab
from paddock.lab.stack import charts
from paddock.lab.stack.engine import ROOT, Engine, Programs
from paddock.lab.stack.recovery import recover
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.pulumi_cli.events import ResourceStep
from paddock.pulumi_cli.stack import Run

ENGINE, CHARTS = "engine", "charts"
"""Folders in the lab's."""
_SERVER_VERSION = "3.21"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A stack that was applied."""

    result: Run
    """The run with every diagnostic; its `seconds` are the run's alone."""
    resources: int
    """In the stack now."""
    objects: bool
    """True where Kubernetes objects and Helm releases are in the lab's cluster, False where a stand-in holds them."""
    charts: tuple[charts.Served, ...]


def overlay(stack: Stack, *, kubeconfig: Path, charts: Path | None = None, github: str | None = None) -> Stack:
    """Return the stack as the lab applies it. `github` is the stand-in's address, without the organisation.

    A cluster of the user's kubeconfig becomes the lab's, and a layer of another stack becomes one of this stack.
    Encrypted values are dropped, because they need the key of the user's stack, and a credential that is kept elsewhere
    becomes one of the configuration, which the lab invents. Raises FleetError.
    """
    config = {key: value for key, value in stack.config.items() if key not in stack.secrets | {LAYERS}}
    fleet: dict[str, Any] = json.loads(config[FLEET])
    fleet.pop("layers", None)
    if charts:
        fleet["mirror"] = {**(fleet.get("mirror") or {}), "charts": str(charts)}
    if github:
        own = fleet["github"]
        url = f"{github.rstrip('/')}{urlsplit(own['url']).path}"
        fleet["github"] = {"serverVersion": _SERVER_VERSION, **own, "url": url}
        if stack.fleet.github.secret_source != IN_CONFIG:  # what a stand-in for AWS's secrets tells is not a key
            made_up = {"app": {**own["app"], "key": IN_CONFIG}} if stack.fleet.github.app else {"token": IN_CONFIG}
            fleet["github"] |= made_up
    if isinstance(stack.fleet.cluster, KubeconfigCluster):
        fleet["cluster"] = {**fleet["cluster"], "kubeconfig": str(kubeconfig), "context": None}
    config[FLEET] = json.dumps(fleet)
    return replace(stack, config=config, secrets=frozenset(), fleet=parse(config, stack.project, stack.name))


def apply(
    lab: Lab,
    stack: Stack,
    *,
    root: Path = ROOT,
    graph: Graph | None = None,
    github: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run `pulumi up` of the user's stack in the lab, also after an interrupted run.

    `graph` is the plan of the stack, where the caller has it. Raises LabInputError where Pulumi is missing or another
    command uses the lab, EngineError and FleetError.
    """
    progress = progress or Progress()
    graph = graph or plan_graph(stack)
    held, served = overlay_with_charts(lab, stack, graph, github=github)
    engine = lab_engine(lab, held, root=root)
    begun = engine.state / f"{stack.name}.begun"
    with state.exclusive_command(lab.folder):
        broken = begun.exists() and engine.exists
        with progress.step("stack, made whole after a run that broke off" if broken else "stack"):
            if broken:
                recover(engine)
            engine.state.mkdir(parents=True, exist_ok=True)
            begun.touch()
            _prepare(engine, held)
        with progress.step(f"pulumi up of {stack.name}, {len(graph.resources)} resources") as notify:
            result = engine.up(_counter(notify, len(graph.resources)))
        begun.unlink()
    held_now = json.loads(engine.exported())["deployment"]["resources"]
    return Outcome(result, resources=len(held_now), objects=engine.real_kubernetes, charts=served)


def overlay_with_charts(
    lab: Lab, stack: Stack, graph: Graph, *, github: str | None = None
) -> tuple[Stack, tuple[charts.Served, ...]]:
    """Return the stack as the lab applies it, and the charts that it takes from the lab's folder."""
    folder = lab.folder / CHARTS
    served = charts.serve(folder, charts.required_charts(graph), charts.real_folder())
    return overlay(stack, kubeconfig=lab.kubeconfig, charts=folder, github=github), served


def lab_engine(lab: Lab, stack: Stack, *, root: Path = ROOT) -> Engine:
    """Return the lab's engine, with the real Kubernetes provider where it is installed. Raises LabInputError."""
    programs = Programs.find()
    real = programs.kubernetes is not None
    return Engine(
        lab.folder / ENGINE, programs, stack=stack.name, root=root, kubeconfig=lab.kubeconfig, real_kubernetes=real
    )


def configuration(stack: Stack) -> dict[str, Any]:
    """Return the configuration in the form of a stack file."""
    return {key: json.loads(value) if value[:1] in ("{", "[") else value for key, value in stack.config.items()}


def _prepare(engine: Engine, stack: Stack) -> None:
    key = _credential(stack)
    there = engine.stack_file.exists() and key in engine.stack_file.read_text(encoding="utf-8")
    # Of the right form; only the stand-in for GitHub accepts it.
    made_up = rsa_key() if key == CREDENTIALS[0] else f"ghp_{'lab' * 12}"
    engine.prepare(configuration(stack), {key: made_up} if key and not there else None)


def _credential(stack: Stack) -> str:
    """Return the key of the secret that the program reads from the configuration; empty where it is elsewhere."""
    github = stack.fleet.github
    return CREDENTIALS[0 if github.app else 1] if github.secret_source == IN_CONFIG else ""


def _counter(notify: Callable[[str], None], total: int) -> Callable[[ResourceStep], None]:
    finished: set[str] = set()

    def count(step: ResourceStep) -> None:
        finished.add(step.urn)
        notify(f"{min(len(finished), total)} done")

    return count
