"""The actions on GPUs for AI agents: a server of the Model Context Protocol on standard input and output.

An action that takes something from others or runs a program needs `confirm: true`; without it the result says what it
would do. Running programs and resetting GPUs are tools only where the user who starts the server allows them. Leases
belong to the server, so they end with the agent's session unless they have a time to live.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import Parameters, one_of, parameter
from paddock.errors import INTERRUPTED
from paddock.gpu import actions
from paddock.gpu.actions import ACTIONS, Action
from paddock.gpu.errors import GpuError, GpuInputError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, Tool

    from paddock.gpu.host.programs import Finished

NAME = "paddock-gpu"
RESTRICTED = tuple(action.name for action in ACTIONS.values() if action.restricted)
_MAX_TEXT = 2000
"""Characters of a result's text; the whole document is in its structured content."""
_MAX_LINE = 500
"""Characters of a line of an error message, which may quote what the agent sent."""
_MAX_ARGUMENTS = 65_536
"""Bytes of a call's arguments as JSON."""
_MAX_TTL = 86_400
"""Seconds: a lease outlives the session by a day at most, since nobody is left to give it back."""
_TIMEOUT = 600.0
_GRACE = 1.0
"""Seconds that a program has to end itself: clients kill a server soon after they ended it."""
_INSTRUCTIONS = (
    "GPUs of this machine. Inspect them with gpu_list and gpu_health, lease with gpu_allocate before you use any, give "
    "a program the variables in the lease's result, and give GPUs back with gpu_deallocate. Leases end with this "
    "session. A tool with the parameter confirm says first what it would do."
)
_CONFIRM = {
    "type": "boolean",
    "default": False,
    "description": "true does it; otherwise the result says what would be done.",
}
_SECONDS = {"type": "number", "default": _TIMEOUT, "description": "Time after which the program is ended."}


@dataclass(frozen=True, kw_only=True)
class McpOptions(Parameters):
    """Parameters of `gpu.mcp`."""

    allow: tuple[str, ...] = parameter((), "let the agent run programs or reset GPUs: run,reset")


@command(reports=False)
def mcp(parameters: McpOptions) -> int:
    """Serve until the client ends. Raises BadFlag, and GpuError where the mcp package is not installed."""
    for name in parameters.allow:
        if name not in RESTRICTED:
            raise BadFlag(f"--allow: {name!r} is not an action to allow\n    expected: {' or '.join(RESTRICTED)}")
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise GpuError(
            "the MCP server needs the package mcp, which is not installed\n    fix: pip install 'paddock[mcp]'"
        ) from None

    programs = _Programs()
    instance = server(programs, parameters.allow)

    async def main() -> None:
        async with stdio_server() as (read, write):
            await instance.run(read, write, instance.create_initialization_options())

    def end() -> None:
        programs.end()
        _give_back()

    def leave(number: int, frame: FrameType | None) -> None:
        """End at once: anyio would wait for the next line of an input that stays open."""
        end()
        os._exit(INTERRUPTED if number == signal.SIGINT else 0)

    for number in (signal.SIGINT, signal.SIGTERM):  # a user's Ctrl-C, and how clients end a server
        signal.signal(number, leave)
    anyio.run(main)
    end()
    return 0


class _Programs:
    """The programs that run for the client: none outlives it."""

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


def server(programs: _Programs, allow: Collection[str] = ()) -> Server[Any]:
    """Build the server, not yet connected."""
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.types import ListToolsResult

    from paddock import __version__

    tools = {_tool_name(action): action for action in ACTIONS.values() if not action.restricted or action.name in allow}

    async def list_tools(context: Any, request: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(name, action) for name, action in tools.items()])

    async def call_tool(context: Any, request: Any) -> CallToolResult:
        cancel = threading.Event()
        try:
            return await anyio.to_thread.run_sync(
                lambda: _call(tools, request.name, request.arguments or {}, programs, cancel), abandon_on_cancel=True
            )
        finally:
            cancel.set()

    return Server(
        NAME, version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _tool_name(action: Action) -> str:
    return f"gpu_{action.name.replace('-', '_')}"


def _tool(name: str, action: Action) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    schema = action.parameters.model().model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    properties = schema.setdefault("properties", {})
    properties.pop("owner", None)  # the server owns the leases
    if "ttl" in properties:
        properties["ttl"]["maximum"] = _MAX_TTL
    if action.destructive:
        properties["confirm"] = _CONFIRM
    if action.separate:
        properties["timeout"] = _SECONDS
    return Tool(
        name=name,
        description=action.about,
        input_schema=schema,
        annotations=ToolAnnotations(
            read_only_hint=action.read_only,
            destructive_hint=action.destructive is not None,
            open_world_hint=action.separate,
        ),
    )


def _call(
    tools: Mapping[str, Action], name: str, values: Mapping[str, Any], programs: _Programs, cancel: threading.Event
) -> CallToolResult:
    try:
        size = len(json.dumps(values))
        if size > _MAX_ARGUMENTS:
            raise GpuInputError(f"the arguments have {size:,} bytes\n    expected: at most {_MAX_ARGUMENTS:,}")
        if name in {_tool_name(ACTIONS[action]) for action in RESTRICTED} - tools.keys():
            raise GpuInputError(
                f"{name} is not allowed here\n    expected: a tool that this server lists"
                f"\n    fix: the user starts the server with gpu.mcp --allow {name.removeprefix('gpu_')}"
            )
        if name not in tools:
            raise GpuInputError(f"{name!r} is not a tool\n    expected: {one_of(name, list(tools))}")
        return _result(*_perform(tools[name], name, dict(values), programs, cancel))
    except GpuError as error:
        message = "\n".join(
            line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..." for line in str(error).splitlines()
        )
        return _result(message, {"error": message, "exit_code": error.exit_code}, failed=True)


def _perform(
    action: Action, name: str, values: dict[str, Any], programs: _Programs, cancel: threading.Event
) -> tuple[str, dict[str, Any]]:
    """Return text and document. Raises GpuError."""
    confirmed = values.pop("confirm", False) if action.destructive else False
    timeout = values.pop("timeout", _TIMEOUT) if action.separate else None
    if not isinstance(confirmed, bool):
        raise GpuInputError(f"{name}: confirm is {confirmed!r}\n    expected: true or false")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout <= 86400):
        raise GpuInputError(f"{name}: timeout is {timeout!r}\n    expected: seconds, more than 0, at most a day")
    if "owner" in values:
        raise GpuInputError(f"{name}: unknown parameter owner\n    expected: no owner, since the server is")
    parameters = actions.parse(action.parameters, values, name)
    if (ttl := getattr(parameters, "ttl", None)) and ttl > _MAX_TTL:
        raise GpuInputError(f"{name}: ttl is {ttl:g}\n    expected: seconds, at most {_MAX_TTL:,} (a day)")
    if action.destructive and action.destructive(parameters, os.getpid()) and not confirmed:
        would = action.describe(parameters)
        plan = action.preview(parameters) if action.preview else None
        document = {"confirmation_needed": True, "would": would, "plan": plan}
        return f"Not done. This would {would}. Call it again with confirm: true to do it.", document
    if action.separate:
        return _run_separately(action, values, programs, timeout, cancel)
    result = actions.call(action, parameters)
    text = "\n".join(result.text())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}...", result.document()


def _run_separately(
    action: Action, values: dict[str, Any], programs: _Programs, timeout: float | None, cancel: threading.Event
) -> tuple[str, dict[str, Any]]:
    finished = programs.run(actions.program(action.name), json.dumps(values), timeout, cancel)
    try:
        document = {**json.loads(finished.output), "output": finished.errors}
    except json.JSONDecodeError:
        raise GpuError(finished.errors.strip() or f"{action.name} ended with status {finished.code}") from None
    return f"It ended with status {document['exit_code']}.\n{finished.errors[-_MAX_TEXT:]}", document


def _result(text: str, document: dict[str, Any], *, failed: bool = False) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=document, is_error=failed)


def _give_back() -> None:
    """Release the leases of this process now, and not only when the next request finds its owner ended."""
    from paddock.gpu.leases.manager import Leases

    try:
        leases = Leases()
        for lease, state in leases.all():
            if state == "held" and lease.ttl is None and [owner.pid for owner in lease.owners] == [os.getpid()]:
                leases.release(lease.id)
    except GpuError:
        pass  # the owner has ended, so the next request gets the GPUs
