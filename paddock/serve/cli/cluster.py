"""Commands on a cluster: start, join, load, ask and end."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.errors import printable
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.agents.home import HEAD, Home, Member
from paddock.serve.agents.ray_process import join as join_head
from paddock.serve.agents.ray_process import start_head, stop, sweep
from paddock.serve.cli.modes import load_mode
from paddock.serve.cli.parameters import Infer, Instance, Join, Load, ServePlan, Show, Up
from paddock.serve.cli.requests import plan_policy, plan_request
from paddock.serve.deployment.saved import FILE
from paddock.serve.errors import ServeError, ServeInputError
from paddock.terminal import JsonOutput, caller_path

_WAIT_S = 600.0
_ANSWER_S = 600.0


def up(flags: Mapping[str, Any]) -> int:
    """Start a head with its scheduler and gateway, print how to go on. Raises ServeError."""
    parameters, home = Up.from_flags(flags), Home.of()
    json = JsonOutput.parse(parameters.json)
    keys, devices = sums(_keys(parameters.key_file)), _devices(parameters.devices)
    limits = parameters.limits()
    backend = _backend(devices)
    _progress("starting the head; it takes up to a minute")
    head = start_head(
        home, port=parameters.port, http_port=parameters.http_port, backend=backend, agent=HEAD, devices=devices
    )
    try:
        with _cluster(home) as (ray, _):
            from paddock.serve.deployment.cluster import start_services

            start_services(ray, parameters.http_port, keys, limits)
    except BaseException:
        stop(home, head)
        raise
    url = f"http://127.0.0.1:{parameters.http_port}/v1"
    json.write({"schema": 1, "address": head.address, "url": url, "token_file": str(home.token_path)})
    _say(
        json,
        f"head   {head.address}",
        f"HTTP   {url}{'' if keys else ', for everybody on this machine: --key-file asks for keys'}",
        f"token  {home.token_path}: copy it to machines that join",
        "",
        f"join   serve.join {head.address} --token-file TOKEN   on another machine",
        "load   serve.load MODEL",
    )
    return 0


def join(flags: Mapping[str, Any]) -> int:
    """Join this machine to a head. Raises ServeError."""
    parameters, home = Join.from_flags(flags), Home.of()
    json = JsonOutput.parse(parameters.json)
    host, _, port = parameters.address.rpartition(":")
    if not host or not port.isdecimal():
        raise ServeInputError(f"{parameters.address!r} is no address\n    expected: HOST:PORT, as serve.up prints it")
    file = caller_path(str(parameters.token_file)) if parameters.token_file else None
    token, devices = home.token(file), _devices(parameters.devices)
    name = parameters.name or os.uname().nodename.partition(".")[0]
    _progress(f"joining {parameters.address}")
    member = join_head(home, parameters.address, token=token, backend=_backend(devices), agent=name, devices=devices)
    json.write({"schema": 1, "agent": member.name, "address": member.address})
    _say(json, f"agent {member.name} has joined {member.address}; serve.down ends it")
    return 0


def down(flags: Mapping[str, Any]) -> int:
    """End the head and the agents that were started here. Raises ServeError."""
    json, home = JsonOutput.parse(Show.from_flags(flags).json), Home.of()
    members = sorted(home.members(), key=lambda member: member.name == HEAD)  # the head last
    for member in members:
        stop(home, member)
        if member.name == HEAD:
            (home.folder / FILE).unlink(missing_ok=True)
    sweep(home)
    json.write({"schema": 1, "ended": [member.name for member in members]})
    _say(json, *(f"ended {member.name}" for member in members), *([] if members else ["nothing runs here"]))
    return 0


def nodes(flags: Mapping[str, Any]) -> int:
    """Print the agents, their devices and what those hold."""
    json = JsonOutput.parse(Show.from_flags(flags).json)
    rows = _call("nodes")
    json.write({"schema": 1, "agents": rows})
    lines = []
    for row in rows:
        state = "" if row["alive"] else ", gone"
        lines.append(f"{row['agent']} on {row['host']}{state}{': ' + row['problem'] if row['problem'] else ''}")
        for device in row["devices"]:
            memory = f"{device['free_mib']} of {device['memory_mib']} MiB free" if device["memory_mib"] else "unknown"
            use = f"  serves {device['instance']}" if device["instance"] else ""
            lines.append(f"  {device['device']:<16} {device['name'] or 'unknown model'}, {memory}{use}")
    _say(json, *lines)
    return 0


def load(flags: Mapping[str, Any]) -> int:
    """Place and deploy a model, or take an endpoint's; 1 where it fits nowhere or has failed. Raises ServeError."""
    from paddock.bench.engine.model_file import model_shape

    parameters = Load.from_flags(flags)
    json = JsonOutput.parse(parameters.json)
    parameters.check_url()
    if parameters.url:
        return _load_url(parameters, json)
    shape, dtype = model_shape(parameters.model_name, "MODEL")
    source = caller_path(parameters.model_name)
    if source.is_file():
        raise ServeInputError(
            f"MODEL: {parameters.model_name} is a file, and a replica loads a checkpoint's folder"
            "\n    expected: a folder with config.json and .safetensors files, or a model by name"
            "\n    fix: serve the file with llama-server, and load that by --url"
        )
    mode = load_mode(parameters.mode)
    plan = ServePlan(
        model_name=parameters.model_name, dtype=parameters.dtype, backend=parameters.backend,
        context=parameters.context, concurrency=mode.concurrency(parameters.concurrency), tp=parameters.tp,
        across_agents=parameters.across_agents, reserve=mode.reserve, pipeline=parameters.pipeline,
    )  # fmt: skip
    request, policy = plan_request(plan, shape, dtype), replace(plan_policy(plan), mode=mode.text)
    with _cluster(Home.of()) as (ray, scheduler):
        folder = str(source.resolve()) if source.is_dir() else ""
        row = ray.get(scheduler.load.remote(request, policy, folder, parameters.pending))
        if "id" not in row:
            json.write({"schema": 1, **row})
            changes = [
                f"  {change['text']}{' (' + change['flags'] + ')' if change['flags'] else ''}"
                for change in row["changes"]
            ]
            changes.append("  or keep it until a machine joins that holds it (--pending)")
            raise ServeError("\n".join([f"{shape.name} fits nowhere in the cluster", *changes]))
        deadline = time.monotonic() + _WAIT_S
        while parameters.wait and row["state"] in ("pending", "loading") and time.monotonic() < deadline:
            time.sleep(0.3)
            row = next(model for model in ray.get(scheduler.models.remote()) if model["id"] == row["id"])
    json.write({"schema": 1, **row})
    _say(json, _line(row))
    return 1 if row["state"] == "failed" else 0


def _load_url(parameters: Load, json: JsonOutput) -> int:
    from paddock.serve.deployment.external import External

    file = caller_path(str(parameters.key_file)).resolve() if parameters.key_file else None
    external = External.of(parameters.url, parameters.model_name, file)
    concurrency = 4 if parameters.concurrency is None else parameters.concurrency
    row = _call("load_url", external, concurrency)
    json.write({"schema": 1, **row})
    _say(json, _line(row))
    return 0 if row["state"] == "serving" else 1


def models(flags: Mapping[str, Any]) -> int:
    """Print the instances."""
    json = JsonOutput.parse(Show.from_flags(flags).json)
    from paddock.serve.deployment.statistics import lines, replica_statistics

    with _cluster(Home.of()) as (ray, scheduler):
        rows = ray.get(scheduler.models.remote())
        counts = replica_statistics(row["id"] for row in rows if row["state"] == "serving" and not row["url"])
    rows = [{**row, "statistics": counts.get(row["id"])} for row in rows]
    json.write({"schema": 1, "models": rows})
    for row in rows:
        _say(json, _line(row), *(lines(row["statistics"]) if row["id"] in counts else ()))
    _say(json, *([] if rows else ["no models; serve.load loads one"]))
    return 0


def unload(flags: Mapping[str, Any]) -> int:
    """End an instance. Raises ServeInputError for one that is not there."""
    parameters = Instance.from_flags(flags)
    json = JsonOutput.parse(parameters.json)
    row = _call("unload", parameters.id)
    if row is None:
        names = ", ".join(model["id"] for model in _call("models")) or "none is loaded"
        raise ServeInputError(f"there is no instance {parameters.id!r}\n    expected: {names}")
    json.write({"schema": 1, **row})
    _say(json, f"unloaded {row['id']}")
    return 0


def infer(flags: Mapping[str, Any]) -> int:
    """Ask an instance through the gateway, and print the answer as it comes. Raises ServeError."""
    parameters, head = Infer.from_flags(flags), Home.of().head()
    json = JsonOutput.parse(parameters.json)
    text, usage = "", None
    for event in _events(head, parameters):
        usage = event.get("usage") or usage
        piece = "".join(choice.get("text", "") for choice in event["choices"])
        text += piece
        if not json.replaces_text:
            sys.stdout.write(printable(piece))
            sys.stdout.flush()
    json.write({"schema": 1, "id": parameters.id, "text": text, "usage": usage})
    _say(json, "")
    return 0


def _events(head: Member, parameters: Infer) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed completion. Raises ServeError."""
    body = {
        "model": parameters.id, "prompt": parameters.prompt, "max_tokens": parameters.max_tokens, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    keys = _keys(parameters.key_file)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {keys[0]}"} if keys else {})}
    url = f"http://127.0.0.1:{head.http_port}/v1/completions"
    request = urllib.request.Request(url, jsonlib.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as response:  # noqa: S310 - of this machine
            for line in response:
                data = line.decode().strip().removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                event = jsonlib.loads(data)
                if "error" in event:
                    raise ServeError(event["error"]["message"])
                yield event
    except urllib.error.HTTPError as error:
        try:
            message = jsonlib.loads(error.read())["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = f"the gateway answers {error.code}"
        raise ServeError(message) from None
    except (OSError, ValueError) as error:
        raise ServeError(f"{url} does not answer: {error}\n    fix: serve.down, then serve.up") from None


@contextmanager
def _cluster(home: Home) -> Iterator[tuple[Any, Any]]:
    from paddock.serve.deployment import cluster

    head = home.head()
    with cluster.connected(head, home.token()) as ray:
        yield ray, cluster.Lazy(ray)


def _call(name: str, *arguments: Any) -> Any:
    """Return what a method of the scheduler returns. Raises ServeError."""
    with _cluster(Home.of()) as (ray, scheduler):
        return ray.get(getattr(scheduler, name).remote(*arguments))


def _line(row: Mapping[str, Any]) -> str:
    shared = f" x {row['tensor_parallel']}" if (row["tensor_parallel"] or 1) > 1 else ""
    placed = [f"{row['class']}{shared}", row["dtype"] or "", *row["devices"]] if row["class"] else ["nowhere"]
    if row["url"]:
        placed = [f"external engine at {row['url']}, no device"]
    why = f": {row['reason']}" if row["reason"] else ""
    moved = f", placed anew {row['moves']} times" if row["moves"] else ""
    return f"{row['id']:<20} {row['state']:<8} {', '.join(placed)}{moved}{why}"


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _devices(path: Path | None) -> Path | None:
    """Return a file of devices, checked. Raises ServeInputError."""
    if path is None:
        return None
    from paddock.serve.agents.devices_file import read_devices

    file = caller_path(str(path)).resolve()
    read_devices(file)
    return file


def _backend(devices: Path | None) -> str:
    """Return the agent's label: the backend of its first GPU, else cpu."""
    if devices is not None:
        from paddock.serve.agents.devices_file import read_devices

        return read_devices(devices)[0].backend
    from paddock.gpu.inventory import inventory
    from paddock.serve.agents.inventory_devices import inventory_devices

    gpus = inventory_devices(inventory())
    return gpus[0].backend if gpus else "cpu"


def _keys(path: Path | None) -> list[str]:
    return api_keys(caller_path(str(path)) if path else None)


def _say(json: JsonOutput, *lines: str) -> None:
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
