"""Replica of a model: the engine's server as a child process, watched, and started again with growing pauses."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from http.client import HTTPException

from paddock.errors import PaddockError
from paddock.serve.agents.inventory_devices import device_variables
from paddock.serve.agents.this_machine import DEVICES
from paddock.serve.engines.engine import Engine, EngineJob, readings
from paddock.serve.engines.environment import install, vllm_python
from paddock.serve.engines.llama import LlamaCpp
from paddock.serve.engines.llama import environment as without_arguments
from paddock.serve.engines.vllm import Vllm
from paddock.serve.errors import ServeError, first_line, in_one_line
from paddock.serve.placement.engines import engine_of as plan_engine
from paddock.serve.replica.forward import Forwarder
from paddock.serve.replica.guard import JOINS
from paddock.serve.replica.lease import lease_devices
from paddock.serve.replica.limits import Limited, check_room
from paddock.serve.replica.program import Program
from paddock.serve.replica.status import Status, Task

_MOST_FAILURES = 3
"""Ends of the server, one after the other, after which the replica has failed."""
_STEADY_S = 60.0
"""Seconds of serving after which earlier ends no longer count."""
_LOOK_S, _ASK_S, _ANSWER_S = 0.05, 2.0, 10.0
_MISSED = 3
"""Questions about its health in a row, without an answer, after which the server hangs."""
_ENDS_S = 20.0
_TAKEN = re.compile("couldn't bind|address already in use", re.IGNORECASE)
"""Words of a server whose port something else has taken meanwhile (llama.cpp, Python)."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Replica:
    """One model, served by one engine on the devices of its plan. It works in a thread; `status` says how it goes."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._status = Status()
        self._ending = threading.Event()
        self._notes: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        """Return its state."""
        return self._status

    def end(self) -> None:
        """End the server, and give back what it held, within some seconds."""
        self._ending.set()
        self._thread.join(_ENDS_S)

    def _run(self) -> None:
        try:
            with ExitStack() as held:
                self._serve(held)
        except PaddockError as error:
            self._fail(in_one_line(error))
        except Exception as error:
            self._fail(f"{type(error).__name__}: {first_line(error)}")

    def _fail(self, reason: str) -> None:
        self._status = replace(self._status, state="failed", reason=reason, port=0)

    def _say(self, text: str) -> None:
        self._status = replace(self._status, state="loading", reason=text, port=0)

    def _serve(self, held: ExitStack) -> None:
        task, plan = self._task, self._task.plan
        engine = engine_of(task, self._progress)
        version = engine.version()
        self._status = replace(self._status, engine=engine.name, version=version)
        path = self._weights()
        if engine.name == "llama.cpp" and os.path.isdir(path):
            raise ServeError(f"a rehearsal computes with llama.cpp, which reads .gguf files: {path} is a checkpoint")
        group = plan.groups[0]
        devices = [placed.device for placed in group.devices]
        rehearsal = bool(os.environ.get(DEVICES))
        here = [device for device in devices if device.agent == devices[0].agent]
        uuids = [device.uuid for device in here if device.uuid and device.backend in ("cuda", "rocm")]
        lease = None if rehearsal else lease_devices(uuids, plan.policy.share)
        if lease:
            held.callback(lease.release)
        if not rehearsal:
            check_room(group)
        limited = held.enter_context(Limited(plan.policy, engine.name, here, rehearsal=rehearsal))
        forwarder = held.enter_context(closing(Forwarder(task.listen, secrets.token_hex(32)))) if task.listen else None
        effects = limited.effects
        self._status = replace(
            self._status, lease=lease.id if lease else None, paced=effects.paced,
            through=forwarder.address if forwarder else "", pass_key=forwarder.key if forwarder else "",
        )  # fmt: skip
        memory = min(effects.memory_part, *(placed.part for placed in group.devices))
        job = EngineJob(
            task.id, path, "cpu" if rehearsal else group.backend, group.degree, plan.request.context,
            plan.request.concurrency, memory, effects.threads, group.dtype, plan.policy.quantization,
            len(here) < len(devices),
        )  # fmt: skip
        environ = {**without_arguments(), **engine.environment, **device_variables(here), **effects.environment}
        if job.across_machines:
            environ[JOINS] = "1"
            self._notes = ("the GPUs on other machines are not leased: keep jobs off them",)
        self._keep(engine, job, environ, limited, forwarder)

    def _progress(self, what: str) -> None:
        """Say what is done before the server starts. Raises ServeError at the end."""
        if self._ending.is_set():
            raise ServeError("it was unloaded")
        self._say(what)

    def _weights(self) -> str:
        """Return the model's file or folder on this machine, which may be fetched or written first."""
        from paddock.models.local import weights

        def progress(what: str, done: int, total: int) -> None:
            self._progress(f"{what}: {done / max(total, 1):.0%} of {total / 1e9:.1f} GB")

        return str(weights(self._task.source, self._task.plan.request.dtype or "", progress))

    def _keep(
        self, engine: Engine, job: EngineJob, environ: Mapping[str, str], limited: Limited, forwarder: Forwarder | None
    ) -> None:
        """Run the server again and again until the end. Raises ServeError once it does not serve any more."""
        self._say(f"{engine.name} loads it")
        failures, served, file = 0, False, _state(job.path)
        while not self._ending.is_set():
            if _state(job.path) != file:
                self._notes = (*self._notes, f"{job.path} has changed since this was placed: load it again")
                file = _state(job.path)
            began, port, key = time.monotonic(), _free_port(), secrets.token_hex(32)
            program = Program(engine.command(job, port), {**environ, engine.key_variable: key})
            limited.follow(program)
            try:
                problem = self._until_ready(engine, program, job, port, key)
                if not problem and not self._ending.is_set():
                    served, ready = True, time.monotonic()
                    program.forget()
                    if forwarder:
                        forwarder.target = port
                    self._status = replace(
                        self._status, state="serving", reason="", port=port, key=key, pid=program.pid,
                        starts=self._status.starts + 1, load_seconds=round(ready - began, 3),
                        notes=(*limited.notes, *self._notes),
                    )  # fmt: skip
                    problem = self._watch(engine, program, limited, port, key)
                    failures = 0 if time.monotonic() - ready > _STEADY_S else failures
                    self._say(problem)  # before its end, which takes seconds where it hangs
            finally:
                if forwarder:
                    forwarder.target = 0
                program.end()
            if self._ending.is_set():
                return
            failures += 1
            if failures >= _MOST_FAILURES or not (served or _TAKEN.search(problem)):
                raise ServeError(problem if failures == 1 else f"{problem} ({failures} times in a row)")
            pause = 2.0 ** (failures - 1)
            self._say(f"{problem}; it starts again in {pause:g} s")
            self._ending.wait(pause)

    def _until_ready(self, engine: Engine, program: Program, job: EngineJob, port: int, key: str) -> str:
        """Wait until the server answers, and return why it does not; empty where it does, or at the end."""
        seconds = self._task.seconds
        deadline = time.monotonic() + seconds
        while not self._ending.wait(_LOOK_S):
            if ended := program.ended(engine.cause):
                return f"{engine.name} does not serve: {ended}"
            if _healthy(port) and _has(job.id, port, key):
                unfit = engine.unfit(job, program.log())
                return f"{engine.name} does not serve: {unfit}" if unfit else ""
            if time.monotonic() > deadline:
                cause = engine.cause(program.log()) or "fix: --deadline, where it needs longer"
                return f"{engine.name} does not serve within {seconds:g} s; {cause}"
        return ""

    def _watch(self, engine: Engine, program: Program, limited: Limited, port: int, key: str) -> str:
        """Return why the server has ended or hangs; empty at the end."""
        missed, asked = 0, time.monotonic()
        while not self._ending.wait(_LOOK_S):
            if ended := program.ended(engine.cause):
                return f"{engine.name} has ended: {ended}"
            if time.monotonic() - asked < _ASK_S:
                continue
            missed = 0 if _healthy(port) else missed + 1
            if missed >= _MISSED:
                return f"{engine.name} does not answer any more"
            asked = time.monotonic()
            limited.follow(program)
            metrics = readings(engine, (_got(port, "metrics", key) or b"").decode(errors="replace"))
            notes = (*limited.notes, *self._notes)
            self._status = replace(self._status, throttle=limited.throttle(), metrics=metrics, notes=notes)
        return ""


def engine_of(task: Task, progress: Callable[[str], None]) -> Engine:
    """Return the engine of a plan, installed if it must be; in a rehearsal it is llama.cpp. Raises ServeError."""
    policy = task.plan.policy
    if os.environ.get(DEVICES) or plan_engine(task.plan.request.model, policy) == "llama.cpp":
        return LlamaCpp(policy.server)
    if policy.python:
        return Vllm(policy.python)
    python = vllm_python()
    if python is None:
        raise ServeError("vLLM is not here; fix: --python names the interpreter of an environment with it")
    install(python, progress)
    return Vllm(str(python))


def _healthy(port: int) -> bool:
    return _got(port, "health") is not None


def _has(id: str, port: int, key: str) -> bool:
    """Return whether the server has the model: another one may have taken the port since it was chosen."""
    with suppress(ValueError, KeyError, TypeError):
        return any(model["id"] == id for model in json.loads(_got(port, "v1/models", key) or b"")["data"])
    return False


def _got(port: int, path: str, key: str = "") -> bytes | None:
    """Return what a server on loopback answers; None where it refuses or does not answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", headers={"Authorization": f"Bearer {key}"})
    with suppress(OSError, HTTPException), _DIRECT.open(request, timeout=_ANSWER_S) as response:
        return bytes(response.read())
    return None


def _state(path: str) -> tuple[int, int]:
    """Return size and time of change of a file. Raises ServeError where it is gone."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ServeError(f"{path} cannot be read ({error.strerror}); fix: put it back, or unload the model") from None
    return found.st_size, found.st_mtime_ns


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
