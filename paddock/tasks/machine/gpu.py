"""The GPUs of this machine, or of a saved inventory: a task for each action, and the commands that are no actions."""

from __future__ import annotations

from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task

from paddock.gpu.actions.registry import ACTIONS, Action
from paddock.gpu.cli import commands
from paddock.tasks.common import task, task_of_flags
from paddock.terminal import JSON_HELP, JsonOutput, caller_path, optional_path, output_path


def _action_task(action: Action) -> Task[Any]:
    """Make the task of an action: its flags are the action's parameters."""

    def perform(c: Context, chosen: dict[str, Any]) -> int:
        return commands.perform(action, chosen, c.config.get("command_line", []))

    return task_of_flags(action.name, action.help, commands.flags(action), perform)


@task(
    name="export",
    help={
        "file": "write this .prom file once, for node_exporter, instead of serving",
        "host": "the address to serve on: whoever reaches it reads it",
        "port": "the port to serve on",
    },
)
def gpu_export(c: Context, file: str | None = None, host: str = "127.0.0.1", port: int = 9400) -> None:
    """Serve metrics and health for Prometheus, under the names of NVIDIA's DCGM exporter."""
    from paddock.gpu.cli import program

    program.export(file=output_path("file", file), host=host, port=port)


@task(
    name="workflow",
    positional=["file"],
    help={
        "file": "the workflow, YAML or JSON",
        "dry-run": "show the order, and what each step would do",
        "fresh": "run every step again, also those that are done",
        "journal": "where to note what is done; by default beside the user's other state",
        "json": JSON_HELP,
    },
)
def gpu_workflow(
    c: Context,
    file: str,
    dry_run: bool = False,
    fresh: bool = False,
    journal: str | None = None,
    json: str | None = None,
) -> None:
    """Run steps on GPUs in their order; a second run goes on after the last good one."""
    from paddock.gpu.cli import program

    where = optional_path("journal", journal)
    code = program.workflow(caller_path(file), dry_run=dry_run, fresh=fresh, journal=where, json=JsonOutput.parse(json))
    if code:
        raise Exit(code=code)


@task(name="mcp", help={"allow": "let the agent run programs or reset GPUs: run,reset"})
def gpu_mcp(c: Context, allow: str = "") -> None:
    """Serve the GPU actions to an AI agent over stdin and stdout (Model Context Protocol)."""
    from paddock.gpu.mcp import parse_allow, serve

    serve(parse_allow(allow))


GPU_TASKS = (*map(_action_task, ACTIONS.values()), gpu_export, gpu_workflow, gpu_mcp)
