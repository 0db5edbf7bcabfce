"""The MCP server as an agent meets it: the package's own client, in this process and over standard input and output."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.console.output import BadFlag
from paddock.gpu import mcp
from paddock.gpu.actions import ACTIONS
from paddock.gpu.leases.allocation import allocate
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.process import start_time
from tests.conftest import ROOT
from tests.support.nvml import Driver, box
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

Talk = Callable[[Any], Awaitable[None]]
Meet = Callable[..., None]


def _meet(talk: Talk, server: Any) -> None:
    import anyio
    from mcp import Client

    async def main() -> None:
        with anyio.fail_after(300):
            async with Client(server) as client:
                await talk(client)

    anyio.run(main)


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leases:
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
    return Leases()


@pytest.fixture
def agent(leases: Leases) -> Meet:
    """Run a client against a server in this process."""
    return lambda talk, allow=("run", "reset"): _meet(talk, mcp.server(mcp._Programs(), allow))


@pytest.fixture
def session(leases: Leases, library: dict[str, str]) -> Meet:
    """Run a client against its own server in a process, over standard input and output."""
    from mcp import StdioServerParameters

    environ = {"PATH": os.environ["PATH"], "PADDOCK_GPU_LEASES": str(leases.path), **library}
    arguments = ["-m", "paddock", "gpu.mcp", "--allow", "run"]
    command = StdioServerParameters(command=sys.executable, args=arguments, env=environ, cwd=ROOT)
    return lambda talk: _meet(talk, command)


@pytest.fixture
def four(driver: Any) -> None:
    """Install the simulated driver of a machine with four GPUs, one of them lost."""
    cards = box("H100", 4)
    cards[2].lost = True
    driver(Driver(cards))


@pytest.fixture
def library(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let programs see the same GPUs by a made-up driver library; return the variables for it."""
    variables = {"LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "4", "FAKE_NVML_LOST": "2"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


async def call(client: Any, tool: str, /, **arguments: Any) -> Any:
    return await client.call_tool(tool, arguments)


async def good(client: Any, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = await call(client, tool, **arguments)
    assert not result.is_error, result.content
    content: dict[str, Any] = result.structured_content
    return content


async def bad(client: Any, tool: str, /, **arguments: Any) -> str:
    result = await call(client, tool, **arguments)
    assert result.is_error
    return str(result.content[0].text)


def test_every_action_is_a_tool_whose_input_is_typed(agent: Meet) -> None:
    async def talk(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {f"gpu_{name.replace('-', '_')}" for name in ACTIONS}
        for tool in tools.values():
            assert tool.input_schema["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False
            assert "owner" not in tool.input_schema["properties"]
            assert all("description" in about for about in tool.input_schema["properties"].values()), tool.name
        assert tools["gpu_allocate"].input_schema["properties"]["count"]["minimum"] == 1
        confirmed = {name for name, tool in tools.items() if "confirm" in tool.input_schema["properties"]}
        assert confirmed == {"gpu_deallocate", "gpu_reset", "gpu_run"}
        assert all(tools[name].annotations.destructive_hint for name in confirmed)
        assert tools["gpu_list"].annotations.read_only_hint
        assert not tools["gpu_allocate"].annotations.read_only_hint

    agent(talk)


def test_programs_and_resets_are_off_unless_the_user_allows_them(agent: Meet, tmp_path: Path) -> None:
    async def talk(client: Any) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "gpu_run" not in names
        assert "gpu_reset" in names
        refusal = await bad(client, "gpu_run", command=["touch", str(tmp_path / "touched")], confirm=True)
        assert "fix: the user starts the server with gpu.mcp --allow run" in refusal
        assert not (tmp_path / "touched").exists()

    agent(talk, allow=("reset",))


def test_allow_names_only_restricted_actions() -> None:
    with pytest.raises(BadFlag, match="'list' is not an action to allow\n    expected: run or reset"):
        mcp.mcp(mcp.McpOptions(allow=("run", "list")))


def test_oversized_arguments_are_refused_without_echo(agent: Meet) -> None:
    async def talk(client: Any) -> None:
        for arguments in (
            {"target": "compose", "options": {"image": "x" * 10_000}},
            {"target": "compose", "options": {"image": "x" * 100_000}},
            {"target": "x" * 10_000},
            {"target": "compose", "uuids": ["x" * 10_000]},
            {"target": "compose", "options": {"x" * 10_000: 1}},
            {"x" * 10_000: 1},
        ):
            assert len(await bad(client, "gpu_render", **arguments)) < 2000

    agent(talk)


def test_a_lease_outlives_the_session_by_a_day_at_most(agent: Meet, four: None) -> None:
    async def talk(client: Any) -> None:
        assert "ttl is 86401\n    expected: seconds, at most 86,400" in await bad(client, "gpu_allocate", ttl=86401)
        await good(client, "gpu_allocate", ttl=86400)

    agent(talk)


def test_an_agent_reads_leases_and_releases(agent: Meet, four: None, leases: Leases) -> None:
    async def talk(client: Any) -> None:
        result = await call(client, "gpu_list")
        assert [gpu["state"] for gpu in result.structured_content["gpus"]] == ["ok", "ok", "lost", "ok"]
        assert "4 GPUs, 1 of them not usable" in result.content[0].text

        lease = await good(client, "gpu_allocate", count=2, min_memory_gib=20)
        uuids = [device["uuid"] for device in lease["lease"]["devices"]]
        assert lease["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(uuids)
        refused = await bad(client, "gpu_allocate", count=2)
        assert "2 GPUs requested, and 1 available" in refused
        assert "leased" in refused
        assert "lost" in refused
        held = await good(client, "gpu_leases")
        assert [entry["id"] for entry in held["leases"]] == [lease["lease"]["id"]]

        await good(client, "gpu_deallocate", leases=[lease["lease"]["id"]])
        assert (await good(client, "gpu_leases"))["leases"] == []

        health = await good(client, "gpu_health")
        assert health["verdict"] == "unhealthy"
        rendered = await call(client, "gpu_render", target="docker", count=1)
        assert "--gpus" in rendered.content[0].text
        memory = await good(client, "gpu_memory_info")
        assert memory["gpus"][0]["memory"]["total"] == 81559
        assert (await good(client, "gpu_cuda_info", toolkit="12.8"))["verdict"] == "ok"
        watched = await good(client, "gpu_monitor", interval=0.1, duration=0.3)
        assert watched["gpus"]

    agent(talk)
    assert leases.all() == ()


def test_leases_without_a_time_to_live_end_with_the_session(session: Meet, leases: Leases) -> None:
    async def talk(client: Any) -> None:
        await good(client, "gpu_allocate")
        await good(client, "gpu_allocate", ttl=600)

    session(talk)
    held = [lease.ttl for lease, state in leases.all() if state == "held"]
    assert held == [600]


def test_nothing_is_destroyed_without_a_word(agent: Meet, four: None, tmp_path: Path) -> None:
    allocate(Request(), owner=os.getppid())

    async def talk(client: Any) -> None:
        (lease,) = (await good(client, "gpu_leases"))["leases"]
        for tool, arguments in (
            ("gpu_deallocate", {"leases": [lease["id"]]}),
            ("gpu_reset", {"gpu": "1"}),
            ("gpu_run", {"command": ["touch", str(tmp_path / "touched")]}),
        ):
            report = await good(client, tool, **arguments)
            assert report["confirmation_needed"]
            assert report["would"]
        plan = (await good(client, "gpu_reset", gpu="1"))["plan"]
        assert plan["steps"] == [], "on this board all are reset together"
        assert f"leased to {lease['user']} (pid {os.getppid()})" in str(plan["refused"])
        assert not (tmp_path / "touched").exists()
        assert (await good(client, "gpu_leases"))["leases"] == [lease]
        assert "confirm is 1" in await bad(client, "gpu_deallocate", leases=[lease["id"]], confirm=1)

        await good(client, "gpu_deallocate", leases=[lease["id"]], confirm=True)
        assert (await good(client, "gpu_leases"))["leases"] == []

    agent(talk)


SLOW = textwrap.dedent("""
    import os, pathlib, sys, time
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)
""")


def test_a_program_runs_on_leased_gpus_and_its_output_is_returned(agent: Meet, library: dict[str, str]) -> None:
    async def talk(client: Any) -> None:
        report = await good(client, "gpu_run", command=[sys.executable, "-c", SLOW], count=2, confirm=True)
        assert report["exit_code"] == 0
        assert report["output"].count("GPU-") == 2
        assert (await good(client, "gpu_leases"))["leases"] == []
        assert "5 GPUs requested" in await bad(client, "gpu_run", command=["true"], count=5, confirm=True)

    agent(talk)


@pytest.mark.e2e
@pytest.mark.parametrize("cause", ["timeout", "goes"])
def test_a_program_does_not_outlive_its_time_or_its_agent(
    session: Meet, leases: Leases, tmp_path: Path, cause: str
) -> None:
    import anyio

    pid = tmp_path / "pid"
    program = [sys.executable, "-c", SLOW, str(pid)]

    def runs() -> bool:
        return pid.exists() and bool(pid.read_text())

    async def talk(client: Any) -> None:
        if cause == "timeout":
            for seconds in (2, 20):  # on a busy machine it has not begun within the first
                asked = {"command": program, "confirm": True, "timeout": seconds}
                assert f"did not end within {seconds} s" in await bad(client, "gpu_run", **asked)
                if runs():
                    return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(client, "gpu_run", command=program, confirm=True))
            while not runs():
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()

    session(talk)
    until(lambda: start_time(int(pid.read_text())) is None)
    assert [state for _, state in leases.all() if state == "held"] == []


MISTAKES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gpu_allocate", {"cout": 1}, "did you mean count?"),
    ("gpu_allocate", {"count": "2"}, "expected: a whole number"),
    ("gpu_allocate", {"owner": 1}, "the server is"),
    ("gpu_info", {"gpu": "7"}, "no GPU is '7'"),
    ("gpu_deallocate", {"leases": ["nope"]}, "there is no lease 'nope'"),
    ("gpu_cuda_info", {"toolkit": "twelve"}, "is not a CUDA version"),
    ("gpu_render", {"target": "docker", "options": {"x": 1}}, "expected: "),
    ("gpu_lst", {}, "did you mean gpu_list?"),
)


def test_a_mistake_is_an_error_that_says_how_to_go_on(agent: Meet, four: None) -> None:
    async def talk(client: Any) -> None:
        for tool, arguments, expected in MISTAKES:
            message = await bad(client, tool, **arguments)
            assert expected in message
            assert "expected: " in message

    agent(talk)


def test_without_the_package_one_sentence_says_how_to_install_it(tmp_path: Path) -> None:
    called = "from paddock.tasks.program import main; sys.exit(main(['paddock', 'gpu.mcp']))"
    hide = f"import sys; sys.modules['mcp'] = None; {called}"
    completed = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (completed.returncode, completed.stdout) == (1, "")
    assert completed.stderr == (
        "the MCP server needs the package mcp, which is not installed\n    fix: pip install 'paddock[mcp]'\n"
    )
