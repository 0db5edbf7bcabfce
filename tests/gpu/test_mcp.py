"""The MCP server as an agent meets it: the package's own client, over standard input and output, in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.actions.registry import ACTIONS
from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.manager import Leases
from paddock.gpu.mcp import serve
from tests.conftest import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

Talk = Callable[[Any], Awaitable[None]]


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., None]:
    """Run a client against its own server; the variables passed extend those of a bare machine."""

    def meet(talk: Talk, *, allow: str = "run,reset", **environ: str) -> None:
        import anyio
        from mcp import Client, StdioServerParameters

        bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PADDOCK_GPU_LEASES": str(tmp_path / "leases")}
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "paddock.gpu.mcp", "--allow", allow], env=bare | environ, cwd=ROOT
        )

        async def main() -> None:
            with anyio.fail_after(120):
                async with Client(parameters) as client:
                    await talk(client)

        anyio.run(main)

    return meet


@pytest.fixture
def four(nvml_library: Path) -> dict[str, str]:
    """Return the variables of a machine with four GPUs, one of them lost, of a made-up driver library."""
    return {"LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "4", "FAKE_NVML_LOST": "2"}


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


def test_every_action_is_a_tool_whose_input_is_typed(agent: Any) -> None:
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


def test_programs_and_resets_are_off_unless_the_user_allows_them(agent: Any, tmp_path: Path) -> None:
    async def talk(client: Any) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "gpu_run" not in names
        assert "gpu_reset" in names
        refusal = await bad(client, "gpu_run", command=["touch", str(tmp_path / "touched")], confirm=True)
        assert "fix: the user starts the server with gpu.mcp --allow run" in refusal
        assert not (tmp_path / "touched").exists()

    agent(talk, allow="reset")


def test_allow_names_only_restricted_actions() -> None:
    with pytest.raises(GpuInputError, match="'list' is no action to allow\n    expected: run or reset"):
        serve(["run", "list"])


def test_oversized_arguments_are_refused_without_echo(agent: Any) -> None:
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


def test_a_lease_outlives_the_session_by_a_day_at_most(agent: Any, four: dict[str, str]) -> None:
    async def talk(client: Any) -> None:
        assert "ttl is 86401\n    expected: seconds, at most 86,400" in await bad(client, "gpu_allocate", ttl=86401)
        await good(client, "gpu_allocate", ttl=86400)

    agent(talk, **four)


def test_an_agent_reads_leases_and_releases(agent: Any, four: dict[str, str], tmp_path: Path) -> None:
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

    agent(talk, **four)
    assert Leases(tmp_path / "leases").all() == ()


def test_leases_without_a_time_to_live_end_with_the_session(agent: Any, four: dict[str, str], tmp_path: Path) -> None:
    async def talk(client: Any) -> None:
        await good(client, "gpu_allocate")
        await good(client, "gpu_allocate", ttl=600)

    agent(talk, **four)
    held = [lease.ttl for lease, state in Leases(tmp_path / "leases").all() if state == "held"]
    assert held == [600]


def test_an_agent_renews_a_lease(agent: Any, four: dict[str, str]) -> None:
    async def talk(client: Any) -> None:
        lease = (await good(client, "gpu_allocate", ttl=600))["lease"]
        (renewed,) = (await good(client, "gpu_renew", leases=[lease["id"]], ttl=900))["renewed"]
        assert (renewed["id"], renewed["ttl"]) == (lease["id"], 900)
        assert renewed["renewed"] > lease["renewed"]
        assert "there is no lease 'nope'" in await bad(client, "gpu_renew", leases=["nope"])

    agent(talk, **four)


def test_nothing_is_destroyed_without_a_word(agent: Any, four: dict[str, str], tmp_path: Path) -> None:
    other = subprocess.run(
        [sys.executable, "-m", "paddock.gpu.actions.registry", "allocate"],
        input=f'{{"owner": {os.getpid()}}}',
        env={**os.environ, **four, "PADDOCK_GPU_LEASES": str(tmp_path / "leases")},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert other.stdout

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
        assert f"leased to {lease['user']} (pid {os.getpid()})" in str(plan["refused"])
        assert not (tmp_path / "touched").exists()
        assert (await good(client, "gpu_leases"))["leases"] == [lease]
        assert "confirm is 1" in await bad(client, "gpu_deallocate", leases=[lease["id"]], confirm=1)

        await good(client, "gpu_deallocate", leases=[lease["id"]], confirm=True)
        assert (await good(client, "gpu_leases"))["leases"] == []

    agent(talk, **four)


SLOW = textwrap.dedent("""
    import os, pathlib, sys, time
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)
""")


def test_a_program_runs_on_leased_gpus_and_its_output_is_returned(agent: Any, four: dict[str, str]) -> None:
    async def talk(client: Any) -> None:
        report = await good(client, "gpu_run", command=[sys.executable, "-c", SLOW], count=2, confirm=True)
        assert report["exit_code"] == 0
        assert report["output"].count("GPU-") == 2
        assert (await good(client, "gpu_leases"))["leases"] == []
        assert "5 GPUs requested" in await bad(client, "gpu_run", command=["true"], count=5, confirm=True)

    agent(talk, **four)


@pytest.mark.e2e
@pytest.mark.parametrize("cause", ["timeout", "goes"])
def test_a_program_does_not_outlive_its_time_or_its_agent(
    agent: Any, four: dict[str, str], tmp_path: Path, cause: str
) -> None:
    import anyio

    pid = tmp_path / "pid"
    program = [sys.executable, "-c", SLOW, str(pid)]

    async def talk(client: Any) -> None:
        if cause == "timeout":
            assert "did not end within 20 s" in await bad(client, "gpu_run", command=program, confirm=True, timeout=20)
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(client, "gpu_run", command=program, confirm=True))
            while not pid.exists() or not pid.read_text():
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()

    agent(talk, **four)
    until(lambda: _has_ended(pid.read_text()))
    assert [state for _, state in Leases(tmp_path / "leases").all() if state == "held"] == []


MISTAKES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gpu_allocate", {"cout": 1}, "did you mean count?"),
    ("gpu_allocate", {"count": "2"}, "expected: a whole number"),
    ("gpu_allocate", {"owner": 1}, "the server owns its leases"),
    ("gpu_info", {"gpu": "7"}, "no GPU is '7'"),
    ("gpu_deallocate", {"leases": ["nope"]}, "there is no lease 'nope'"),
    ("gpu_cuda_info", {"toolkit": "twelve"}, "is not a CUDA version"),
    ("gpu_render", {"target": "docker", "options": {"x": 1}}, "expected: "),
    ("gpu_lst", {}, "did you mean gpu_list?"),
)


def test_a_mistake_is_an_error_that_says_how_to_go_on(agent: Any, four: dict[str, str]) -> None:
    async def talk(client: Any) -> None:
        for tool, arguments, expected in MISTAKES:
            message = await bad(client, tool, **arguments)
            assert expected in message
            assert "expected: " in message

    agent(talk, **four)


def test_a_machine_without_gpus_says_why(agent: Any) -> None:
    async def talk(client: Any) -> None:
        result = await call(client, "gpu_list")
        assert result.structured_content["gpus"] == []
        assert "no GPU" in result.content[0].text
        assert "no GPU" in await bad(client, "gpu_allocate")

    agent(talk)


def test_without_the_package_one_sentence_says_how_to_install_it(tmp_path: Path) -> None:
    hide = (
        "import sys; sys.modules['mcp'] = None; import runpy; runpy.run_module('paddock.gpu.mcp', run_name='__main__')"
    )
    completed = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (completed.returncode, completed.stdout) == (1, "")
    assert completed.stderr == (
        "the MCP server needs the package mcp, which is not installed\n    fix: pip install 'paddock[mcp]'\n"
    )


def _has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
