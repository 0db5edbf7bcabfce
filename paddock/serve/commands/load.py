"""`serve.load`: place a model on the cluster's devices and deploy it, or take an endpoint's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.console.command import command
from paddock.console.output import JsonOutput, caller_path
from paddock.console.parameters import parameter
from paddock.console.progress import Progress, progress
from paddock.console.question import agreed, can_ask
from paddock.console.report import Report
from paddock.errors import program
from paddock.models import sources
from paddock.models.local import hub
from paddock.serve.agents.home import Home, Member
from paddock.serve.commands import text
from paddock.serve.commands.connection import call, connected
from paddock.serve.commands.models import instance_line
from paddock.serve.commands.requests import Placed, load_mode, plan_policy, plan_request
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.placement.device import SERVES
from paddock.serve.placement.plan import Infeasible, ModelPlacement, document
from paddock.serve.placement.request import Policy

if TYPE_CHECKING:
    from paddock.serve.deployment.scheduler import Answer

_LOOK_S = 0.3
_OF_AN_ENDPOINT = {"model_name", "url", "key_file", "concurrency", "wait"}


@dataclass(frozen=True, kw_only=True)
class Load(Placed):
    """Parameters of `serve.load`."""

    url: str = parameter("", "an OpenAI-compatible endpoint that has the model: nothing is placed, requests go there")
    key_file: Path | None = parameter(None, "with --url: the file with the endpoint's API key, read for every request")
    pending: bool = parameter(False, "where it fits nowhere yet, keep it until a machine joins that holds it")
    wait: bool = parameter(False, "return when the model serves, has failed, or --deadline is over")
    deadline: int = parameter(600, "seconds in which the model must be loaded, each time that it is placed", ge=1)

    def check(self) -> None:
        """Check that the flags go together. Raises ServeInputError."""
        if self.url:
            if wrong := sorted(self.changed() - _OF_AN_ENDPOINT):
                raise ServeInputError(
                    f"--{wrong[0].replace('_', '-')} places a model, and --url places none"
                    "\n    expected: with --url only --key-file, --concurrency, --wait and --json"
                )
        elif self.key_file is not None:
            raise ServeInputError("--key-file is that of an endpoint\n    expected: --url with its address")


@dataclass(frozen=True, kw_only=True)
class TakenEndpoint(Report):
    """The instance of an endpoint."""

    SCHEMA = 1
    row: dict[str, Any]

    def text(self) -> Iterator[str]:
        yield instance_line(self.row)

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, **self.row}

    @property
    def exit_code(self) -> int:
        return 0 if self.row["state"] == "serving" else 1


@dataclass(frozen=True, kw_only=True)
class Loaded(Report):
    """The scheduler's answer, and the row of the instance as it was last, None where the model fits nowhere."""

    SCHEMA = 1
    answer: Answer
    row: dict[str, Any] | None
    waited: bool
    head: Member

    def text(self) -> Iterator[str]:
        yield from text.lines(self.answer.result, {})
        yield from (f"not known: {agent}" for agent in self.answer.unanswered)
        if self.row is not None:
            yield ""
            yield instance_line(self.row)
            yield from (f"note: {note}" for note in self.row["notes"])
            yield from _try_it(self.row, self.head)

    def notes(self) -> Iterator[str]:
        result = self.answer.result
        if self.row is not None or not isinstance(result, Infeasible):
            return
        held = [left.reason.removeprefix(SERVES) for left in result.refused if left.reason.startswith(SERVES)]
        ways = ["one of the changes above"] if result.changes else []
        ways += [f"{program()} serve.unload {held[0]}, which gives its devices back"] if held else []
        yield f"{result.request.model.name} fits nowhere in the cluster"
        yield f"    fix: {', or '.join([*ways, 'keep it until a machine joins that holds it (--pending)'])}"

    def document(self) -> dict[str, Any]:
        plan = document(self.answer.result)
        placing = {"plan": plan} if self.answer.row else plan
        unanswered = list(self.answer.unanswered)
        return {"schema": self.SCHEMA, **(self.row or {}), **placing, "unanswered": unanswered}

    @property
    def exit_code(self) -> int:
        state = self.row["state"] if self.row else "failed"
        return 1 if state == "failed" or (self.waited and state != "serving") else 0


@command(checks_values_first=True)
def load(parameters: Load) -> Loaded | TakenEndpoint:
    """Place and deploy a model, or take an endpoint's; 1 where it fits nowhere or does not serve. Raises ServeError."""
    parameters.check()
    if parameters.url:
        return _endpoint(parameters)
    model = sources.model(parameters.model_name)
    mode = load_mode(parameters.mode)
    parameters = replace(parameters, concurrency=mode.concurrency(parameters.concurrency))
    request = plan_request(parameters, model)
    policy = replace(plan_policy(parameters, model, mode.reserve), mode=mode.text, share=mode.share)
    with connected() as (_, scheduler), progress() as shown:
        if policy.engine == "vllm" and isinstance(scheduler("plan", request, policy).result, ModelPlacement):
            _may_install(policy, parameters.json, shown)
        source, deadline = _source(parameters.model_name), parameters.deadline
        answer = scheduler("load", request, policy, source, parameters.pending, float(deadline))
        row = answer.row
        if row is not None and parameters.wait:
            row = waited(scheduler, row, deadline, shown)
    return Loaded(answer=answer, row=row, waited=parameters.wait, head=Home.of().head())


def waited(scheduler: Any, row: dict[str, Any], seconds: float, shown: Progress) -> dict[str, Any]:
    """Return the row once the model serves or has failed, or as it is after so many seconds. Raises ServeError."""
    deadline, id = time.monotonic() + seconds, row["id"]
    try:
        while row["state"] not in ("serving", "failed") and time.monotonic() < deadline:
            shown.now(f"{id} is {row['state']}{': ' + row['reason'] if row['reason'] else ''}")
            time.sleep(_LOOK_S)
            rows = {model["id"]: model for model in scheduler("models")}
            if id not in rows or rows[id]["state"] == "unloading":
                raise ServeError(f"{id} has been unloaded meanwhile")
            row = rows[id]
    except KeyboardInterrupt:
        shown.say(f"{id} continues to load: serve.models shows it, serve.unload {id} ends it")
        raise
    return row


def _may_install(policy: Policy, json: JsonOutput, shown: Progress) -> None:
    """Ask before machines fetch vLLM, where somebody can answer. Raises ServeInputError for a no."""
    from paddock.serve.engines.environment import SIZE, is_installed, vllm_python

    if policy.python:
        return
    python = vllm_python()
    if python is None:
        raise ServeInputError(
            "--python: vLLM needs an environment of its own, and this installation has no lock of one"
            "\n    expected: --python with the interpreter of an environment of vLLM, on each machine"
        )
    if is_installed(python):
        return
    what = f"vLLM is installed on each machine that gets the model, in an environment of its own: {SIZE}"
    if not can_ask(json):
        shown.say(what)
    elif not agreed(f"{what}. Go on?", json):
        raise ServeInputError("vLLM is not installed\n    fix: --python names an environment that has it")


def _source(name: str) -> str:
    """Return the folder, the file or the hub's commit that a model names, as every machine finds it.

    The name of a preset stays. Raises ModelError.
    """
    if hub.is_reference(name):
        return hub.pinned(name)
    path = caller_path(name)
    return str(path.absolute()) if path.exists() else name


def _try_it(row: Mapping[str, Any], head: Member) -> tuple[str, ...]:
    """Return a command that asks a model, which may have to serve first."""
    if row["state"] == "failed":
        return ()
    body = f'{{"model": "{row["id"]}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 32}}'
    key = ' -H "Authorization: Bearer $KEY"' if head.keys else ""
    ask = f"ask    curl -s {head.url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"
    return "", *(() if row["state"] == "serving" else (f"once it serves, as {program()} serve.models says:",)), ask


def _endpoint(parameters: Load) -> TakenEndpoint:
    from paddock.serve.gateway.external import External

    file = parameters.key_file.resolve() if parameters.key_file else None
    external = External.of(parameters.url, parameters.model_name, file)
    return TakenEndpoint(row=call("load_url", external, parameters.concurrency or 4))
