"""Commands on models: load one, show them and unload one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paddock.models import sources
from paddock.serve.cli.connection import call, connected
from paddock.serve.cli.modes import LoadMode, load_mode
from paddock.serve.cli.output import progress, row_line, say
from paddock.serve.cli.parameters import Instance, Load, ServePlan, Show
from paddock.serve.cli.requests import plan_policy, plan_request
from paddock.serve.cli.text import lines as plan_lines
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.own.refusals import serving_refusal
from paddock.serve.own.sizes import as_loaded
from paddock.serve.placement.plan import document
from paddock.terminal import JsonOutput, caller_path

if TYPE_CHECKING:
    from paddock.serve.deployment.scheduler import Answer

_LOOK_S = 0.3
_UNLOAD_S = 60.0


def load(flags: Mapping[str, Any]) -> int:
    """Place and deploy a model, or take an endpoint's; 1 where it fits nowhere or does not serve. Raises ServeError."""
    parameters = Load.from_flags(flags)
    json = JsonOutput.parse(parameters.json)
    parameters.check()
    if parameters.url:
        return _load_url(parameters, json)
    model = sources.model(parameters.model_name)
    mode = load_mode(parameters.mode)
    plan = ServePlan(
        model_name=parameters.model_name, dtype=parameters.dtype, backend=parameters.backend,
        context=parameters.context, concurrency=mode.concurrency(parameters.concurrency),
        tp=1 if parameters.engine == "vllm" else parameters.tp,
        across_agents=parameters.across_agents, reserve=mode.reserve, pipeline=parameters.pipeline,
    )  # fmt: skip
    _check_vllm(parameters, mode)
    request = plan_request(plan, model)
    if parameters.engine == "paddock":
        if error := serving_refusal(model, "MODEL"):
            raise error
        request = replace(request, model=as_loaded(model))
    policy = replace(plan_policy(plan), mode=mode.text, share=mode.share, python=parameters.python)
    with connected() as (_, scheduler):
        answer = scheduler(
            "load", request, policy, model_source(parameters.model_name), parameters.pending, float(parameters.deadline)
        )
        row = answer.row
        if row is not None and parameters.wait:
            row = waited(scheduler, row, parameters.deadline)
    json.write({"schema": 1, **(row or {}), **_placing(answer)})
    say(json, *plan_lines(answer.result, {}), *(f"not known: {agent}" for agent in answer.unanswered))
    if row is None:
        raise ServeError(
            f"{model.name} fits nowhere in the cluster\n"
            "    fix: one of the changes above, or keep it until a machine joins that holds it (--pending)"
        )
    say(json, "", row_line(row))
    return 1 if row["state"] == "failed" or (parameters.wait and row["state"] != "serving") else 0


def _check_vllm(parameters: Load, mode: LoadMode) -> None:
    """Check that vLLM has the model's files, and keeps to the mode. Raises ServeInputError."""
    if parameters.engine != "vllm":
        return
    if not caller_path(parameters.model_name).is_dir():
        raise ServeInputError(
            f"MODEL: {parameters.model_name} is no folder, and vLLM reads a checkpoint's"
            "\n    expected: a folder with config.json, .safetensors and a tokenizer"
        )
    if mode.pauses:
        raise ServeInputError(
            f"--mode {mode.name} does not go with --engine vllm: it pauses between steps, which vLLM does not"
            "\n    expected: --mode aggressive, or a policy without enable_auto_throttle"
        )


def model_source(name: str) -> str:
    """Return the checkpoint's folder or .gguf file that a model names; empty for a preset, whose weights are random."""
    path = caller_path(name)
    return str(path.resolve()) if path.exists() else ""


def _placing(answer: Answer) -> dict[str, Any]:
    """Return the plan beside the row of an instance, or in its place."""
    plan = document(answer.result)
    return {**({"plan": plan} if answer.row else plan), "unanswered": list(answer.unanswered)}


def waited(scheduler: Any, row: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the row once the model serves or has failed, or as it is after so many seconds. Raises ServeError."""
    deadline, id, printed = time.monotonic() + seconds, row["id"], ""
    try:
        while row["state"] not in ("serving", "failed") and time.monotonic() < deadline:
            if (line := f"{id} is {row['state']}{': ' + row['reason'] if row['reason'] else ''}") != printed:
                progress(printed := line)
            time.sleep(_LOOK_S)
            rows = {model["id"]: model for model in scheduler("models")}
            if id not in rows or rows[id]["state"] == "unloading":
                raise ServeError(f"{id} has been unloaded meanwhile")
            row = rows[id]
    except KeyboardInterrupt:
        progress(f"{id} goes on loading: serve.models shows it, serve.unload {id} ends it")
        raise
    return row


def _load_url(parameters: Load, json: JsonOutput) -> int:
    from paddock.serve.deployment.external import External

    file = caller_path(str(parameters.key_file)).resolve() if parameters.key_file else None
    external = External.of(parameters.url, parameters.model_name, file)
    concurrency = 4 if parameters.concurrency is None else parameters.concurrency
    row = call("load_url", external, concurrency)
    json.write({"schema": 1, **row})
    say(json, row_line(row))
    return 0 if row["state"] == "serving" else 1


def models(flags: Mapping[str, Any]) -> int:
    """Print the instances."""
    json = JsonOutput.parse(Show.from_flags(flags).json)
    from paddock.serve.deployment.statistics import lines, replica_statistics

    with connected() as (_, scheduler):
        rows = scheduler("models")
        counts = replica_statistics(row["id"] for row in rows if row["state"] == "serving" and not row["url"])
    rows = [{**row, "statistics": counts.get(row["id"])} for row in rows]
    json.write({"schema": 1, "models": rows})
    for row in rows:
        say(json, row_line(row), *(lines(row["statistics"]) if row["id"] in counts else ()))
    say(json, *([] if rows else ["no models; serve.load loads one"]))
    return 0


def unload(flags: Mapping[str, Any]) -> int:
    """End an instance, and return once its devices are free; 1 where they are not within a minute. Raises ServeError.

    An id that is not there raises ServeInputError.
    """
    parameters = Instance.from_flags(flags)
    json = JsonOutput.parse(parameters.json)
    with connected() as (_, scheduler):
        row = scheduler("unload", parameters.id)
        if row is None:
            names = ", ".join(model["id"] for model in scheduler("models")) or "none is loaded"
            raise ServeInputError(f"there is no instance {parameters.id!r}\n    expected: {names}")
        deadline = time.monotonic() + _UNLOAD_S
        while ending := any(model["id"] == parameters.id for model in scheduler("models")):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
    json.write({"schema": 1, **row, "ended": not ending})
    if ending:
        raise ServeError(
            f"the replica of {row['id']} has not ended within {_UNLOAD_S:g} s\n    fix: see serve.models, and"
            f" end its process on {', '.join(row['devices'])}"
        )
    say(json, f"unloaded {row['id']}")
    return 0
