"""Replicas in vLLM of another environment, before a stand-in program with its command line and HTTP; no Ray."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.leases.manager import Leases
from paddock.models.shapes import shape
from paddock.openai.answers import Piece
from paddock.process import start_time
from paddock.serve.admission.refusal import RequestError
from paddock.serve.cli.models import load
from paddock.serve.cli.parameters import Load
from paddock.serve.deployment.vllm import VllmReplica, vllm_version
from paddock.serve.engine.program import Program
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.own.protocol import Spec
from tests.support.generations import generation
from tests.support.nvml import Driver, card, installed
from tests.support.packages import need
from tests.support.vllm import VERSION, started, write_environment
from tests.support.waiting import until

need("psutil")

SECONDS = 60


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_environment(tmp_path_factory.mktemp("environment") / "vllm")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/config.json").write_text("{}")
    return tmp_path / "checkpoint"


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Yield the one event loop of a replica."""
    with asyncio.Runner() as runner:
        yield runner


async def _closed(replica: VllmReplica) -> None:
    replica._connections.close()
    await asyncio.sleep(0.01)


@pytest.fixture
def replica(
    python: Path, checkpoint: Path, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VllmReplica]:
    for name in ("RAY_AUTH_TOKEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "of-paddock")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    replica = VllmReplica(spec(checkpoint), "", str(python), SECONDS)
    yield replica
    runner.run(_closed(replica))
    replica.__del__()


def spec(checkpoint: Path, device: str = "cpu") -> Spec:
    return Spec(shape("tiny"), "bf16", device, 3, 256, str(checkpoint))


@pytest.fixture
def answer(replica: VllmReplica, runner: asyncio.Runner) -> Callable[..., list[Piece]]:
    async def pieces(prompt: str, most: int = 3, **more: Any) -> list[Piece]:
        return [piece async for piece in replica.generate(generation(prompt, most, **more))]

    return lambda *prompt, **more: runner.run(asyncio.wait_for(pieces(*prompt, **more), SECONDS))


def test_a_stand_in_of_vllm_is_started_with_what_the_plan_says(replica: VllmReplica, python: Path) -> None:
    process = started(python)
    flags = dict(zip(process["argv"][1::2], process["argv"][2::2], strict=True))
    assert flags.pop("--model").endswith("/checkpoint")
    assert int(flags.pop("--port")) > 0
    assert flags == {
        "--served-model-name": "tiny", "--host": "127.0.0.1", "--dtype": "bfloat16", "--max-model-len": "256",
        "--max-num-seqs": "3", "--gpu-memory-utilization": "0.95",
    }  # fmt: skip
    environ = process["environ"]
    assert environ["VLLM_API_KEY"] not in " ".join(process["argv"])
    assert not {"RAY_AUTH_TOKEN", "PYTHONPATH"} & set(environ)


def test_a_stand_in_of_vllm_answers_and_is_counted(replica: VllmReplica, answer: Callable[..., list[Piece]]) -> None:
    pieces = answer("hello")
    assert "".join(piece.text for piece in pieces) == "w0 w1 w2 "
    assert (pieces[-1].finish, pieces[-1].new_tokens, pieces[-1].prompt_tokens) == ("length", 3, 5)
    with pytest.raises(RequestError, match="maximum context length is 256 tokens"):
        answer("x" * 300)
    statistics = replica.statistics()
    assert [statistics[name] for name in ("requests", "answered", "failed", "running")] == [2, 1, 1, 0]
    assert statistics["engine"] == f"vLLM {VERSION}"


def test_a_stand_in_of_vllm_gets_every_option(answer: Callable[..., list[Piece]]) -> None:
    options = {"temperature": 0.5, "stop": ["x"], "seed": 3, "top_k": 5, "response_format": {"type": "json_object"}}
    (piece,) = answer("options", **options)
    assert json.loads(piece.text) == {
        **options, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}
    }  # fmt: skip


def test_a_stand_in_that_dies_ends_its_stream_and_makes_the_replica_unhealthy(
    replica: VllmReplica, answer: Callable[..., list[Piece]]
) -> None:
    replica.check_health()
    with pytest.raises(RequestError, match="vLLM has gone: it ended with code 1: CUDA error") as error:
        answer("dies", 9)
    assert error.value.status == 502
    with pytest.raises(ServeError, match="illegal memory access"):
        replica.check_health()


def test_an_unloaded_stand_in_ends_its_streams_with_the_reason(
    replica: VllmReplica, python: Path, runner: asyncio.Runner
) -> None:
    async def unloaded() -> None:
        pieces = replica.generate(generation("waits", 9))
        await anext(pieces)
        await replica.unload()
        with pytest.raises(RequestError, match="the model has been unloaded"):
            await anext(pieces)

    runner.run(asyncio.wait_for(unloaded(), SECONDS))
    assert start_time(started(python)["pid"]) is None


def test_a_stand_in_that_does_not_start_says_why(python: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ServeError, match=rf"vLLM {VERSION} does not serve: it ended with code 1: OSError: .* config\.json"
    ):
        VllmReplica(spec(tmp_path), "", str(python), SECONDS)


def test_an_environment_without_vllm_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"has no vLLM: importlib\.metadata\.PackageNotFoundError"):
        vllm_version(sys.executable)
    with pytest.raises(ServeError, match=r"there is no program /nowhere/python on "):
        vllm_version("/nowhere/python")


def test_a_replica_in_a_stand_in_of_vllm_holds_the_lease_of_its_gpu(
    python: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(Driver([card("A10G")])) as driver:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", driver.cards[0].uuid)
        monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
        replica = VllmReplica(spec(checkpoint, "cuda"), "", str(python), SECONDS)
        (lease,) = Leases().held()
        assert lease.id == replica.statistics()["lease"]
        assert started(python)["environ"]["CUDA_VISIBLE_DEVICES"] == driver.cards[0].uuid
        replica.__del__()
        assert Leases().held() == ()


OWNER = """\
import sys, time
from paddock.serve.engine.program import Program
program = Program([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"], {})
while not program.log():
    time.sleep(0.01)
print(program.pid, program.log().strip(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["owner", "guard"])
def test_a_program_ends_with_its_owner_also_when_that_is_killed(root: Path, killed: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert owner.stdout is not None
    guard, program = map(int, owner.stdout.readline().split())
    assert start_time(program) is not None
    os.kill(owner.pid if killed == "owner" else guard, signal.SIGKILL)
    until(lambda: start_time(program) is None, SECONDS)
    owner.kill()
    owner.wait()
    owner.stdout.close()


def test_a_program_that_is_not_there_says_so() -> None:
    program = Program(["/nowhere/python"], {})
    until(program.ended, SECONDS)
    assert program.ended() == "it ended with code 127: /nowhere/python cannot be started: No such file or directory"
    program.end()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"engine": "vlm"}, "--engine: there is no engine 'vlm'\n    expected: did you mean vllm?"),
        ({"python": "/opt/vllm/bin/python"}, "--python is that of another engine"),
        ({"engine": "vllm"}, "--python: '' is no path from the root"),
        ({"engine": "vllm", "python": "venv/bin/python"}, "--python: 'venv/bin/python' is no path from the root"),
        ({"engine": "vllm", "python": "/p", "dtype": "int4"}, "--dtype does not go with --engine vllm"),
        ({"engine": "vllm", "python": "/p", "tp": "2"}, "--tp does not go with --engine vllm"),
        (
            {"engine": "vllm", "python": "/p", "url": "http://box:8000"},
            "--engine places a model",
        ),
    ],
)
def test_flags_that_do_not_go_with_the_engine_are_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ServeInputError) as error:
        Load.from_flags({"model_name": "tiny", **flags}).check()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        ("tiny", {}, "MODEL: tiny is no folder, and vLLM reads a checkpoint's"),
        ("checkpoint", {"mode": "conservative"}, "--mode conservative does not go with --engine vllm"),
    ],
)
def test_a_model_or_mode_that_vllm_cannot_take_is_refused(
    checkpoint: Path, model: str, flags: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_CWD", str(checkpoint.parent))
    config = {**shape("tiny").config(), "architectures": ["LlamaForCausalLM"]}
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ServeInputError) as error:
        load({"model_name": model, "engine": "vllm", "python": "/opt/vllm/bin/python", **flags})
    assert message in str(error.value)
