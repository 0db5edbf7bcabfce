"""Replica in vLLM's program: a stand-in with its command line and HTTP, as vLLM itself runs on no machine of CI."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from paddock.models import sources
from paddock.process import session_members
from paddock.serve.engines.vllm import Vllm
from paddock.serve.errors import ServeError
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.placement.request import Policy, Request
from paddock.serve.replica import replica as module
from paddock.serve.replica.replica import Replica
from paddock.serve.replica.status import Status, Task
from tests.support import vllm_server
from tests.support.model_files import checkpoint
from tests.support.packages import need
from tests.support.waiting import until

need("psutil")

SECONDS = 60
Start = Callable[..., Replica]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return what starts a replica of a checkpoint, which ends with the test."""
    for name in ("PYTHONPATH", "PYTHONSAFEPATH", "RAY_AUTH_TOKEN", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, str(Path(module.__file__).parents[3]))
    replicas: list[Replica] = []
    folder = checkpoint(tmp_path / "llama")

    def start(fault: str = "") -> Replica:
        policy = Policy(engine="vllm", python=str(vllm_server.python(tmp_path, fault)), reserve=0.2)
        request = Request(sources.model(str(folder)), None, 512, 3)
        plan = place(request, [Device("head", "cuda", 0, 80_000, 80_000)], policy)
        assert isinstance(plan, ModelPlacement)
        replicas.append(Replica(Task("llama-2", str(folder), plan, SECONDS)))
        return replicas[-1]

    yield start
    for replica in replicas:
        replica.end()


def settled(replica: Replica, starts: int = 1) -> Status:
    until(lambda: (s := replica.status()).state == "failed" or (s.state == "serving" and s.starts == starts), SECONDS)
    return replica.status()


def ask(status: Status, path: str, key: str, body: object = None) -> int:
    data = json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{status.port}/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def server_of(status: Status) -> int:
    return int(Path(f"/proc/{status.pid}/task/{status.pid}/children").read_text().split()[0])


def test_a_stand_in_of_vllm_gets_plan_and_key(start: Start) -> None:
    replica = start()
    status = settled(replica)
    assert (status.state, status.engine, status.version) == ("serving", "vllm", "0.33.0"), status
    process = Path(f"/proc/{server_of(status)}")
    _, _, command, folder, *flags = (process / "cmdline").read_text().rstrip("\0").split("\0")
    assert (command, folder.endswith("/llama")) == ("serve", True)
    assert dict(zip(flags[::2], flags[1::2], strict=True)) == {
        "--served-model-name": "llama-2", "--host": "127.0.0.1", "--port": str(status.port), "--dtype": "bfloat16",
        "--max-model-len": "512", "--max-num-seqs": "3", "--gpu-memory-utilization": "0.8",
    }  # fmt: skip
    environ = dict(word.split("=", 1) for word in (process / "environ").read_text().split("\0") if "=" in word)
    assert (environ["VLLM_API_KEY"], environ["HF_HUB_OFFLINE"]) == (status.key, "1")
    assert not [name for name in environ if name.startswith(("PYTHON", "RAY_", "PADDOCK_", "VIRTUAL_ENV"))]
    assert [ask(status, "v1/models", key) for key in (status.key, "wrong")] == [200, 401]
    replica.end()
    assert not session_members(int(process.name))


def test_metrics_of_a_stand_in_of_vllm_have_our_names(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.05)
    replica = start()
    metrics = until(lambda: replica.status().metrics, SECONDS)
    assert metrics == {"running": 2.0, "waiting": 1.0, "cache_used": 0.25, "tokens_total": 7.0}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("old", "unrecognized arguments: --max-num-seqs 3; fix: --python with vLLM 0.33, whose arguments these are"),
        ("memory", "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"),
    ],
)
def test_a_stand_in_of_vllm_says_why_it_ends(start: Start, fault: str, reason: str) -> None:
    status = settled(start(fault))
    assert (status.state, status.reason) == ("failed", f"vllm does not serve: {reason}")


def test_a_stand_in_of_vllm_that_dies_starts_again(start: Start) -> None:
    replica = start()
    first = settled(replica)
    with pytest.raises((HTTPException, OSError)):
        ask(first, "v1/completions", first.key, {"prompt": "dies", "max_tokens": 9})
    until(lambda: replica.status().state == "loading", SECONDS)
    assert replica.status().reason.startswith("vllm has ended: RuntimeError: CUDA error: an illegal memory access")
    second = settled(replica, starts=2)
    assert ask(second, "v1/completions", second.key, {"prompt": "hello", "max_tokens": 2}) == 200


def test_an_environment_without_vllm_is_named() -> None:
    with pytest.raises(ServeError, match=r"has no vLLM: importlib\.metadata\.PackageNotFoundError.*; fix: name the"):
        Vllm(sys.executable).version()
