"""The actions on GPUs for AI agents: a server of the Model Context Protocol on standard input and output.

What takes something from others or runs a program wants `confirm: true`, and else says what it would do. Leases belong
to the server, so they end with the agent's session unless they have a time to live.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from paddock.gpu.errors import GpuError, GpuInputError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, Tool

    from paddock.gpu.actions.registry import Action
    from paddock.gpu.host.programs import Finished

NAME = "paddock-gpu"
_SHOWN = 2000
"""Characters of a document that stand in an answer's text; all of it is in its structured content."""
_TIMEOUT = 600.0
_GRACE = 1.0
"""Seconds that a program has to end itself: clients kill a server soon after they ended it."""
_INSTRUCTIONS = (
    "GPUs of this machine. Look with gpu_list and gpu_health, lease with gpu_allocate before you use any, show a "
    "program the variables that the lease answers, and give GPUs back with gpu_deallocate. Leases end with this "
    "session. A tool that asks for confirm says first what it would do."
)
_CONFIRM = {
    "type": "boolean",
    "default": False,
    "description": "true does it; else it is only said what would be done.",
}
_SECONDS = {"type": "number", "default": _TIMEOUT, "description": "After which the program is ended."}


def serve() -> None:
    """Until its client goes. Raises GpuError where the mcp package is not installed."""
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise GpuError(
            "the MCP server needs the package mcp, which is not installed\n    fix: pip install 'paddock[mcp]'"
        ) from None

    programs = _Programs()
    made = server(programs)

    async def main() -> None:
        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    signal.signal(signal.SIGTERM, _interrupt)  # how clients end a server
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(main)
    programs.end()
    _give_back()


class _Programs:
    """Those that run for the client, so that none outlives it."""

    def __init__(self) -> None:
        self._running: set[threading.Event] = set()
        self._changed = threading.Condition()

    def run(self, command: Sequence[str], stdin: str, timeout: float | None, cancel: threading.Event) -> Finished:
        """Raises TimedOut and Cancelled."""
        from paddock.gpu.host import programs

        with self._changed:
            self._running.add(cancel)
        try:
            return programs.run(command, stdin=stdin, timeout=timeout, cancel=cancel, grace=_GRACE)
        finally:
            with self._changed:
                self._running.discard(cancel)
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            for cancel in self._running:
                cancel.set()
            self._changed.wait_for(lambda: not self._running, timeout=2 * _GRACE + 5)


def server(programs: _Programs) -> Server[Any]:
    """Not yet connected to anybody."""
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.types import ListToolsResult

    from paddock import __version__
    from paddock.gpu.actions.registry import ACTIONS

    tools = {_tool_name(action): action for action in ACTIONS.values()}

    async def listed(context: Any, asked: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(name, action) for name, action in tools.items()])

    async def called(context: Any, asked: Any) -> CallToolResult:
        cancel = threading.Event()
        try:
            return await anyio.to_thread.run_sync(
                lambda: _call(tools, asked.name, asked.arguments or {}, programs, cancel), abandon_on_cancel=True
            )
        finally:
            cancel.set()

    return Server(NAME, version=__version__, instructions=_INSTRUCTIONS, on_list_tools=listed, on_call_tool=called)


def _tool_name(action: Action) -> str:
    return f"gpu_{action.name.replace('-', '_')}"


def _tool(name: str, action: Action) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    schema = action.parameters.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    names = schema.setdefault("properties", {})
    names.pop("owner", None)  # the server's own
    if action.destroys:
        names["confirm"] = _CONFIRM
    if action.alone:
        names["timeout"] = _SECONDS
    reads = action.name not in ("allocate", "ml-env") and not action.destroys
    return Tool(
        name=name,
        description=action.about,
        input_schema=schema,
        annotations=ToolAnnotations(
            read_only_hint=reads, destructive_hint=action.destroys is not None, open_world_hint=action.alone
        ),
    )


def _call(
    tools: Mapping[str, Action], name: str, given: Mapping[str, Any], programs: _Programs, cancel: threading.Event
) -> CallToolResult:
    from paddock.gpu.parameter import did_you_mean

    try:
        if name not in tools:
            raise GpuInputError(f"there is no tool {name!r}\n    expected: {did_you_mean(name, list(tools))}")
        return _answer(*_perform(tools[name], name, dict(given), programs, cancel))
    except GpuError as error:
        return _answer(str(error), {"error": str(error), "exit_code": error.exit_code}, failed=True)


def _perform(
    action: Action, name: str, given: dict[str, Any], programs: _Programs, cancel: threading.Event
) -> tuple[str, dict[str, Any]]:
    """Text and document. Raises GpuError."""
    from paddock.gpu.parameter import parse

    confirmed = given.pop("confirm", False) if action.destroys else False
    timeout = given.pop("timeout", _TIMEOUT) if action.alone else None
    if not isinstance(confirmed, bool):
        raise GpuInputError(f"{name}: confirm is {confirmed!r}\n    expected: true or false")
    if not (timeout is None or _positive(timeout)):
        raise GpuInputError(f"{name}: timeout is {timeout!r}\n    expected: seconds, more than 0, at most a day")
    if "owner" in given:
        raise GpuInputError(f"{name}: unknown parameter owner\n    expected: none, since the server owns its leases")
    asked = parse(action.parameters, given, name)
    if action.destroys and action.destroys(asked, os.getpid()) and not confirmed:
        would = action.would(asked)
        plan = action.preview(asked) if action.preview else None
        told = {"confirmation_needed": True, "would": would, "plan": plan}
        return f"Not done. This would {would}. Call it again with confirm: true to do it.", told
    if action.alone:
        return _alone(action, given, programs, timeout, cancel)
    found = action.perform(asked)
    return _text(action, found), found


def _alone(
    action: Action, given: dict[str, Any], programs: _Programs, timeout: float | None, cancel: threading.Event
) -> tuple[str, dict[str, Any]]:
    from paddock.gpu.actions.registry import program

    done = programs.run(program(action.name), json.dumps(given), timeout, cancel)
    try:
        found = {**json.loads(done.output), "output": done.errors}
    except json.JSONDecodeError:
        raise GpuError(done.errors.strip() or f"{action.name} ended with status {done.code}") from None
    return f"It ended with status {found['exit_code']}.\n{done.errors[-_SHOWN:]}", found


def _answer(text: str, document: dict[str, Any], *, failed: bool = False) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=document, is_error=failed)


def _text(action: Action, found: dict[str, Any]) -> str:
    """What a person would be told; the document is beside it."""
    match action.name:
        case "list" if not found["gpus"]:
            return str(found["reason"])
        case "list":
            return "\n".join(
                f"GPU {one['index']}: {one['name']}, {one['uuid']}"
                + ("" if one["state"] == "ok" else f", {one['state']}")
                for one in found["gpus"]
            )
        case "allocate":
            uuids = ", ".join(device["uuid"] for device in found["lease"]["devices"])
            return f"Lease {found['lease']['id']} of {uuids}."
        case "deallocate":
            return f"Given back: {', '.join(lease['id'] for lease in found['released'])}."
        case "health":
            worst = "".join(f"\n{one['severity']}: {one['evidence']}" for one in found["findings"][:5])
            return f"{found['verdict']}; to do: {found['action']}{worst}"
        case "render":
            return "\n".join(f"# {file['path']}\n{file['text']}" for file in found["files"])
        case _:
            text = json.dumps(found)
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... (all of it is in the structured content)"


def _give_back() -> None:
    """The leases that end with this process, now and not when somebody looks."""
    from paddock.gpu.leases.manager import Leases

    try:
        leases = Leases()
        for lease, state in leases.all():
            if state == "held" and lease.ttl is None and [one.pid for one in lease.owners] == [os.getpid()]:
                leases.release(lease.id)
    except GpuError:
        pass  # its owner has ended, so the next who asks gets the GPUs


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 86400


def main() -> int:
    try:
        serve()
    except GpuError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
