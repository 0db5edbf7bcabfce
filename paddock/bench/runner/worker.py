"""The worker process: loads models, measures them and prints events. A hang or a crash ends it alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any

import psutil
import torch

from paddock.bench.errors import BenchError
from paddock.bench.measurement import energy
from paddock.bench.runner.alternation import Alternation
from paddock.bench.runner.jobs import Job, from_json
from paddock.bench.runner.loop import CudaTimer, Timer, measure
from paddock.bench.runner.pacing import Turns, lower_priority, pacing
from paddock.bench.runner.roof import Roof
from paddock.children import end_with_parent
from paddock.gpu.inventory import sampler
from paddock.models.model import PLAIN
from paddock.serve.own import parallel
from paddock.serve.own.loading import capability
from paddock.serve.own.packing import quality
from paddock.serve.own.packing.formats import plain_format
from paddock.serve.own.protocol import MeasuredEngine, Spec
from paddock.serve.own.torch_engine import TorchEngine

_MATRIX = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def main(text: str) -> None:
    """Measure the jobs, in order. The first rank alone prints what it measured.

    Where ranks share a model, one that fails ends: the others wait for it in a sum, and the benchmark ends them.
    """
    end_with_parent()
    jobs = from_json(text)
    parallel.join(jobs[0].device)
    ranks = parallel.world_size()
    if ranks > 1 and jobs[0].device == "cuda":
        torch.cuda.set_device(parallel.rank())
    refused = lower_priority(jobs[0])
    worker = _Worker(torch.device(jobs[0].device), jobs[0].uuids, refused, _alternation(jobs))
    for number, job in enumerate(jobs):
        _say("job", number=number)
        try:
            worker.run(job)
        except BenchError as error:
            _failed(str(error), error.exit_code)
        except torch.cuda.OutOfMemoryError:
            _failed("the GPU's memory is full\n    fix: a smaller --batch, --prompt or --dtype", 1)
    parallel.leave()


def _alternation(jobs: list[Job]) -> Alternation | None:
    """Return the turns with another benchmark, which has to measure the same."""
    if jobs[0].in_turn is None:
        return None
    work = [
        [job.shape.name, job.dtype, job.mode, *job.batches, *job.prompts, job.new, job.runs, job.warm_up]
        for job in jobs
    ]
    return Alternation(jobs[0].in_turn, {"jobs": work}, waits=lambda: _say("waits"))


def _failed(message: str, code: int) -> None:
    _print("failed", message=message, code=code)
    if parallel.world_size() > 1:
        os._exit(1)  # leaving the ranks in order would wait for the others


class _Worker:
    def __init__(
        self, device: torch.device, uuids: tuple[str, ...], notes: tuple[str, ...], alternation: Alternation | None
    ) -> None:
        self._notes, self._alternation = notes, alternation
        self._device = device
        self._roof = Roof(device)
        self._reference: torch.Tensor | None = None
        self._joules = energy.counter(sampler() if uuids else None, uuids)

    def run(self, job: Job) -> None:
        """Load the model, say how good it is, and measure every batch and length."""
        reference = self._needed_reference(job)
        engine: MeasuredEngine = _engine(job.engine)
        info = engine.load(_spec(job))
        info = replace(info, notes=(*info.notes, *self._notes))
        _say("loaded", tflops=self._tflops(job.dtype), threads=torch.get_num_threads(), **asdict(info))
        try:
            if isinstance(engine, TorchEngine):
                self._compare(engine, job, reference)
            with pacing(job, lambda statistics: _say("statistics", **asdict(statistics))) as turns:
                for batch in job.batches:
                    for prompt in job.prompts:
                        self._cell(engine, job, batch, prompt, turns)
        finally:
            engine.unload()

    def _cell(self, engine: MeasuredEngine, job: Job, batch: int, prompt: int, turns: Turns) -> None:
        prepared = engine.prepare(batch, prompt + job.new)
        generator = torch.Generator().manual_seed(job.seed)
        with self._turn():
            started_at, before = time.time(), self._roof.read_gbs()
        sums = [
            self._roof.sum_seconds(rows, job.shape.hidden, self._activations(job.dtype))
            for rows in (batch, batch * prompt)
        ]
        _forget_peak(self._device)
        timer = CudaTimer() if self._device.type == "cuda" else Timer(_synchroniser(self._device))
        joules, start = self._joules(), time.monotonic()
        samples = measure(
            engine,
            lambda _: torch.randint(0, job.shape.vocabulary, (batch, prompt), generator=generator),
            timer,
            new=job.new,
            runs=job.runs,
            warm_up=job.warm_up,
            turn=lambda: self._request(turns, batch),
        )
        seconds, memory = time.monotonic() - start, _memory(self._device) - self._roof.nbytes
        engine.check()
        with self._turn():
            bandwidth = [*before, *self._roof.read_gbs()]
        _say(
            "cell",
            started_at=started_at,
            batch=batch,
            prompt=prompt,
            prefill=samples.prefill,
            runs=samples.runs,
            wall=samples.wall,
            paused=samples.paused,
            engine=samples.engine,
            calls=samples.calls,
            **asdict(prepared),
            began=start,
            seconds=seconds,
            joules=energy.spent(joules, self._joules(), seconds),
            requests=job.runs + job.warm_up,
            bandwidth=bandwidth,
            sums=sums,
            memory=memory,
            in_turn=self._alternation is not None and not self._alternation.alone,
        )

    def _turn(self) -> AbstractContextManager[None]:
        """Return the context of what must not meet a run of the other benchmark, where there is one."""
        return self._alternation.turn() if self._alternation else nullcontext()

    @contextmanager
    def _request(self, turns: Turns, batch: int) -> Iterator[float]:
        with self._turn(), turns(batch) as paused:
            yield paused

    def _needed_reference(self, job: Job) -> torch.Tensor | None:
        """Return the logits of the weights as they were, which a quantised job that is compared needs."""
        if not job.compare or job.dtype in PLAIN:
            return None
        if self._reference is None and job.reference:
            engine = TorchEngine()
            engine.load(_spec(replace(job, dtype=job.reference)))
            try:
                self._reference = _logits(engine, job)
            finally:
                engine.unload()
        return self._reference

    def _compare(self, engine: TorchEngine, job: Job, reference: torch.Tensor | None) -> None:
        """Keep the logits of a plain format, and compare those of a quantised one with them."""
        if job.dtype in PLAIN:
            if job.compare and self._reference is None:
                self._reference = _logits(engine, job)
        elif reference is not None:
            _say("quality", **asdict(quality.compare(reference, _logits(engine, job))))

    def _tflops(self, dtype: str) -> float:
        """Return the measured speed of products in the format that a long prompt is computed in."""
        return self._roof.tflops(self._activations(dtype))

    def _activations(self, dtype: str) -> torch.dtype:
        if self._device.type == "cpu":
            return torch.float32
        plain = dtype if dtype in PLAIN else plain_format(self._device.type, capability(self._device))
        return _MATRIX[plain]


def _engine(name: str) -> Any:
    if name == "llama.cpp":
        from paddock.serve.own.llama_engine import LlamaEngine

        return LlamaEngine()
    return TorchEngine()


def _spec(job: Job) -> Spec:
    return Spec(
        job.shape, job.dtype, job.device, max(job.batches), job.length, job.source, job.seed, job.memory_fraction
    )


def _logits(engine: TorchEngine, job: Job) -> torch.Tensor:
    """Return the logits of a few prompts, which are the same for every format."""
    generator = torch.Generator().manual_seed(job.seed + 1)
    prompts = torch.randint(0, job.shape.vocabulary, (quality.PROMPTS, quality.LENGTH), generator=generator)
    return torch.cat([engine.logits(prompt[None]) for prompt in prompts])


def _synchroniser(device: torch.device) -> Any:
    return torch.mps.synchronize if device.type == "mps" else (lambda: None)


def _forget_peak(device: torch.device) -> None:
    """Let the peak of the GPU's memory begin anew: loading, and larger batches before this one, are no part of it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _memory(device: torch.device) -> int:
    """Return the bytes of this process: the most that it had of the GPU, or what it has of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return int(psutil.Process().memory_info().rss)


def _say(event: str, **values: Any) -> None:
    if parallel.rank() == 0:
        _print(event, **values)


def _print(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
