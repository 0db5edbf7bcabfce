"""The worker process: loads models, measures them and prints events. A hang or a crash ends it alone."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any, NoReturn

from paddock.bench.engines.door import BenchJob, Engine, Roof
from paddock.bench.errors import BenchError
from paddock.bench.measurement import energy
from paddock.bench.measurement.others import Others
from paddock.bench.runner.alternation import Alternation
from paddock.bench.runner.loop import measure
from paddock.bench.runner.process import Jobs
from paddock.children import end_with_parent
from paddock.errors import one_line
from paddock.gpu.inventory import inventory, sampler
from paddock.modes import priority
from paddock.modes.adaptive import Throttle, adapting
from paddock.modes.config import PRESETS
from paddock.modes.limiter import Limiter, Statistics
from paddock.modes.policy import Policy

_NO_LIMITS = Policy(resources=PRESETS["aggressive"].model_copy(update={"max_batch_size": 65536}))
Turns = Callable[[int], AbstractContextManager[float]]
"""Context in which a request of that batch runs. It waits first, and gives the seconds of the pause."""


def main(text: str) -> None:
    """Measure the jobs, in order."""
    end_with_parent()
    jobs = Jobs.validate_json(text)
    worker = _Worker(jobs[0].uuids, lower_priority(jobs[0]), _alternation(jobs))
    for number, job in enumerate(jobs):
        _say("job", number=number)
        try:
            worker.run(job)
        except BenchError as error:
            _say("failed", message=str(error), code=error.exit_code)
        except (MemoryError, RuntimeError) as error:
            if type(error).__name__ not in ("MemoryError", "OutOfMemoryError"):  # the second is torch's
                _end(error)
            whose = "machine" if job.device == "cpu" else "GPU"
            fix = "a smaller --batch, --prompt, --dtype or model"
            _say("failed", message=f"the {whose}'s memory is full\n    fix: {fix}", code=1)
        except Exception as error:
            _end(error)


def _end(error: Exception) -> NoReturn:
    """End with the error's reason as the last line, which is what the benchmark shows.

    Those of torch and CUDA go on for lines, and end with advice to their developers.
    """
    traceback.print_exception(error)
    sys.exit(one_line(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"))


def _alternation(jobs: list[BenchJob]) -> Alternation | None:
    """Return the turns with another benchmark, which has to measure the same."""
    if jobs[0].in_turn is None:
        return None
    what = ("engine", "dtype", "mode", "threads", "cache", "batches", "prompts", "new", "runs", "warm_up")
    work = [[job.shape.name, *(getattr(job, name) for name in what)] for job in jobs]
    # As the other side reads it: JSON has no tuples.
    return Alternation(jobs[0].in_turn, {"jobs": json.loads(json.dumps(work))}, waits=lambda: _say("waits"))


class _Worker:
    def __init__(self, uuids: tuple[str, ...], notes: tuple[str, ...], alternation: Alternation | None) -> None:
        self._notes, self._alternation = notes, alternation
        self._joules = energy.counter(sampler() if uuids else None, uuids)

    def run(self, job: BenchJob) -> None:
        """Load the model, and measure every batch and length."""
        engine = _engine(job.engine)
        try:
            info = engine.load(job)
            roof = engine.roof()
            tflops = roof.tflops(info.computed) if info.computed else None
            _say("loaded", tflops=tflops, **asdict(replace(info, notes=(*info.notes, *self._notes))))
            with pacing(job, lambda statistics: _say("statistics", **asdict(statistics))) as turns:
                for batch in job.batches:
                    for prompt in job.prompts:
                        self._cell(engine, roof, job, batch, prompt, turns)
        finally:
            engine.unload()

    def _cell(self, engine: Engine, roof: Roof, job: BenchJob, batch: int, prompt: int, turns: Turns) -> None:
        if job.device == "cuda":
            _say("compiles", batch=batch, prompt=prompt)
        import numpy as np

        prepared = engine.prepare(batch, prompt + job.new)
        generator = np.random.default_rng(job.seed)
        with self._turn():
            started_at, before = time.time(), roof.read_gbs()
        engine.forget_peak()
        joules, start, others = self._joules(), time.monotonic(), Others()
        samples = measure(
            engine, lambda _: generator.integers(0, job.shape.vocabulary, (batch, prompt)), engine.timer(),
            new=job.new, runs=job.runs, warm_up=job.warm_up, turn=lambda: self._request(turns, batch, others),
        )  # fmt: skip
        seconds, busy, memory = time.monotonic() - start, others.part(), engine.memory() - roof.nbytes
        with self._turn():
            engine.check()
            bandwidth = [*before, *roof.read_gbs()]
        _say(
            "cell", batch=batch, prompt=prompt, started_at=started_at, began=start, seconds=seconds,
            joules=energy.spent(joules, self._joules(), seconds), requests=job.runs + job.warm_up, bandwidth=bandwidth,
            others=busy, memory=memory, in_turn=self._alternation is not None and not self._alternation.alone,
            **asdict(samples), **asdict(prepared),
        )  # fmt: skip

    def _turn(self) -> AbstractContextManager[None]:
        """Return the context of what must not meet a run of the other benchmark, where there is one."""
        return self._alternation.turn() if self._alternation else nullcontext()

    @contextmanager
    def _request(self, turns: Turns, batch: int, others: Others) -> Iterator[float]:
        with self._turn(), turns(batch) as paused, others.watched():
            yield paused


def lower_priority(job: BenchJob) -> tuple[str, ...]:
    """Take the priority of the resource mode, and return what the system refused of it."""
    if job.policy is None:
        return ()
    settings = priority.apply(_policy(job).current()())
    return tuple(f"{item.name} {item.value}: {item.reason}" for item in settings if not item.applied)


@contextmanager
def pacing(job: BenchJob, report: Callable[[Statistics], None] = lambda _: None) -> Iterator[Turns]:
    """Keep a job to its resource mode: by the time of day, by others' load on its GPUs, and to its user's limits.

    `report` gets the statistics of the mode after each request.
    """
    policy = _policy(job)
    current, throttle = policy.current(), Throttle(policy.adaptive)
    limiter = Limiter(policy, lambda: throttle.apply(current()))

    @contextmanager
    def turn(batch: int) -> Iterator[float]:
        with limiter.request(batch, application=job.application, user=job.user) as admitted:
            yield admitted.paused
        report(limiter.statistics())

    with ExitStack() as stack:
        if policy.adaptive.enabled:
            for uuid in job.uuids:
                stack.enter_context(adapting(throttle, lambda: inventory(processes=True), uuid, _own(limiter)))
        yield turn


def _policy(job: BenchJob) -> Policy:
    if job.policy is None:
        return _NO_LIMITS
    return Policy.model_validate(job.policy, strict=False)  # JSON has no tuples


def _own(limiter: Limiter) -> Callable[[], tuple[set[int], float]]:
    """Return a function that tells this benchmark's processes, and the part of the time in which it was busy."""
    import psutil

    since, busy = time.monotonic(), 0.0

    def own() -> tuple[set[int], float]:
        nonlocal since, busy
        now, total = time.monotonic(), limiter.statistics().busy_seconds
        part = (total - busy) / max(now - since, 1e-3)
        since, busy = now, total
        return {psutil.Process().pid}, part

    return own


def _engine(name: str) -> Engine:
    if name == "llama.cpp":
        from paddock.bench.engines.llama import LlamaEngine

        engine: Engine = LlamaEngine()
        return engine
    from paddock.bench.engines.torch_engine import TorchEngine

    return TorchEngine()


def _say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
