"""Commands on a cluster: start it, join it, show it and end it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from paddock.ray_labels import HEAD
from paddock.serve.admission.keys import api_keys, sums
from paddock.serve.agents.home import Home, Member, http_url
from paddock.serve.agents.ray_process import join as join_head
from paddock.serve.agents.ray_process import start_head, stop, sweep
from paddock.serve.agents.report import Report, agent_name, rehearsal, this_report
from paddock.serve.cli.connection import call, connected
from paddock.serve.cli.output import progress, say
from paddock.serve.cli.parameters import Join, Show, Up
from paddock.serve.deployment.instances.saved import FILE
from paddock.serve.errors import ServeInputError
from paddock.terminal import JsonOutput, caller_path, work_begins


def up(flags: Mapping[str, Any]) -> int:
    """Start a head with its scheduler and gateway, print how to go on. Raises ServeError."""
    parameters, home = Up.from_flags(flags), Home.of()
    json = JsonOutput.parse(parameters.json)
    keys = sums(api_keys(caller_path(str(parameters.key_file)) if parameters.key_file else None))
    parameters.check_host(keys)
    limits, report = parameters.limits(), _report(parameters.devices, HEAD)
    progress("starting the head; it takes up to a minute")
    head = start_head(
        home, port=parameters.port, http_port=parameters.http_port, http_host=parameters.http_host, report=report,
        dashboard=parameters.dashboard,
    )  # fmt: skip
    try:
        with connected() as (ray, _):
            from paddock.serve.deployment.cluster import start_services

            start_services(ray, parameters.http_host, parameters.http_port, keys, limits)
    except BaseException:
        stop(home, head)
        raise
    url = http_url(head.http_host, head.http_port, head.address.rpartition(":")[0])
    dashboard = f"http://127.0.0.1:{parameters.dashboard}" if parameters.dashboard is not None else None
    started = {"address": head.address, "url": url, "token_file": str(home.token_path), "dashboard": dashboard}
    json.write({"schema": 1, **started, "broken": dict(report.broken)})
    say(
        json,
        f"head   {head.address}",
        f"HTTP   {url}{_who_may_ask(head, bool(keys))}",
        *([f"Ray    {dashboard}, which asks for the token"] if dashboard else []),
        f"token  {home.token_path}: copy it to machines that join",
        "",
        f"join   serve.join {head.address} --token-file TOKEN   on another machine",
        "load   serve.load MODEL",
    )
    return 0


def _who_may_ask(head: Member, keys: bool) -> str:
    if not keys:
        return ", for everybody on this machine: --key-file asks for keys"
    loopback = ip_address(head.http_host).is_loopback
    return "" if loopback else ", with an API key; neither key nor text is encrypted on the way"


def join(flags: Mapping[str, Any]) -> int:
    """Join this machine to a head. Raises ServeError."""
    parameters, home = Join.from_flags(flags), Home.of()
    json = JsonOutput.parse(parameters.json)
    host, _, port = parameters.address.rpartition(":")
    if not host or not port.isdecimal():
        raise ServeInputError(f"{parameters.address!r} is no address\n    expected: HOST:PORT, as serve.up prints it")
    name = agent_name(parameters.name or os.uname().nodename.partition(".")[0])
    file = caller_path(str(parameters.token_file)) if parameters.token_file else None
    token, report = home.token(file), _report(parameters.devices, name)
    progress(f"joining {parameters.address}")
    member = join_head(home, parameters.address, token=token, name=name, report=report)
    json.write({"schema": 1, "agent": member.name, "address": member.address, "broken": dict(report.broken)})
    say(json, f"agent {member.name} has joined {member.address}; serve.down ends it")
    return 0


def down(flags: Mapping[str, Any]) -> int:
    """End the head and the agents that were started here, and forget the head's models. Raises ServeError."""
    json, home = JsonOutput.parse(Show.from_flags(flags).json), Home.of()
    work_begins()
    members = sorted(home.members(), key=lambda member: member.name == HEAD)  # the head last
    for member in members:
        stop(home, member)
    sweep(home)
    (home.folder / FILE).unlink(missing_ok=True)  # also of a head that was killed
    json.write({"schema": 1, "ended": [member.name for member in members]})
    say(json, *(f"ended {member.name}" for member in members), *([] if members else ["nothing runs here"]))
    return 0


def nodes(flags: Mapping[str, Any]) -> int:
    """Print the agents, their devices and what those hold."""
    json = JsonOutput.parse(Show.from_flags(flags).json)
    rows = call("nodes")
    json.write({"schema": 1, "agents": rows})
    for row in rows:
        state = "" if row["alive"] else ", gone"
        say(json, f"{row['agent']} on {row['host']}{state}{': ' + row['problem'] if row['problem'] else ''}")
        say(json, *map(_device_line, row["devices"]))
    return 0


def _device_line(device: Mapping[str, Any]) -> str:
    memory = f"{device['free_mib']} of {device['memory_mib']} MiB free" if device["memory_mib"] else "unknown"
    use = f"  serves {device['instance']}" if device["instance"] else ""
    unavailable = f"  not available: {device['unavailable']}" if device["unavailable"] else ""
    return f"  {device['device']:<16} {device['name'] or 'unknown model'}, {memory}{use}{unavailable}"


def _report(devices: Path | None, name: str) -> Report:
    """Return what this machine reports as an agent, and say what it cannot use. Raises ServeInputError."""
    rehearsed = rehearsal(caller_path(str(devices)).resolve(), name) if devices is not None else None
    work_begins()
    if rehearsed is not None:
        return rehearsed
    progress("looking at this machine's devices and torch")
    report = this_report()
    for backend, why in report.broken.items():
        progress(f"{backend} cannot be used here: {why}")
    return report
