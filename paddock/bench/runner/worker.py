"""The worker process: loads models, measures them and prints events. A hang or a crash ends it alone."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import psutil
import torch

from paddock.bench.engine import parallel
from paddock.bench.engine.protocol import MeasuredEngine, Spec
from paddock.bench.engine.torch_engine import TorchEngine
from paddock.bench.errors import BenchError
from paddock.bench.measurement import energy
from paddock.bench.quantisation import quality
from paddock.bench.runner.jobs import Job, from_json
from paddock.bench.runner.loop import CudaTimer, Timer, measure
from paddock.bench.runner.pacing import Turns, lower_priority, pacing
from paddock.bench.runner.roof import Roof
from paddock.gpu.inventory import sampler

_MATRIX = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def main(text: str) -> None:
    """Measure the jobs, in order. The first rank alone prints."""
    jobs = from_json(text)
    parallel.join(jobs[0].device)
    if parallel.world_size() > 1 and jobs[0].device == "cuda":
        torch.cuda.set_device(parallel.rank())
    refused = lower_priority(jobs[0])
    worker = _Worker(torch.device(jobs[0].device), jobs[0].uuids, refused)
    for number, job in enumerate(jobs):
        _say("job", number=number)
        try:
            worker.run(job)
        except BenchError as error:
            _say("failed", message=str(error), code=error.exit_code)
        except torch.cuda.OutOfMemoryError:
            _say("failed", message="the GPU's memory is full\n    fix: a smaller --batch, --prompt or --dtype", code=1)
    parallel.leave()


class _Worker:
    def __init__(self, device: torch.device, uuids: tuple[str, ...], notes: tuple[str, ...]) -> None:
        self._notes = notes
        self._device = device
        self._roof = Roof(device)
        self._reference: torch.Tensor | None = None
        self._joules = energy.counter(sampler() if uuids else None, uuids)

    def run(self, job: Job) -> None:
        engine: MeasuredEngine = _engine(job.engine)
        spec = Spec(
            job.shape, job.dtype, job.device, max(job.batches), job.length, job.source, job.seed, job.memory_fraction
        )
        info = engine.load(spec)
        info = replace(info, notes=(*info.notes, *self._notes))
        _say("loaded", tflops=self._tflops(job.dtype), threads=torch.get_num_threads(), **asdict(info))
        try:
            if job.engine == "torch" and job.compare:
                self._compare(engine, job)
            with pacing(job) as turns:
                for batch in job.batches:
                    for prompt in job.prompts:
                        self._cell(engine, job, batch, prompt, turns)
        finally:
            engine.unload()

    def _cell(self, engine: MeasuredEngine, job: Job, batch: int, prompt: int, turns: Turns) -> None:
        prepared = engine.prepare(batch, prompt + job.new)
        _forget_peak(self._device)
        generator = torch.Generator().manual_seed(job.seed)
        started_at, before = time.time(), self._roof.read_gbs(4)
        joules, start = self._joules(), time.monotonic()
        samples = measure(
            engine,
            lambda _: torch.randint(0, job.shape.vocabulary, (batch, prompt), generator=generator),
            CudaTimer() if self._device.type == "cuda" else Timer(_synchroniser(self._device)),
            new=job.new,
            runs=job.runs,
            warm_up=job.warm_up,
            turn=lambda: turns(batch),
        )
        seconds = time.monotonic() - start
        engine.check()
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
            seconds=seconds,
            joules=energy.spent(joules, self._joules(), seconds),
            requests=job.runs + job.warm_up,
            bandwidth=[*before, *self._roof.read_gbs(4)],
            memory=_memory(self._device) - self._roof.nbytes,
        )

    def _compare(self, engine: Any, job: Job) -> None:
        """Keep the logits of a model without quantisation, and compare others with them."""
        generator = torch.Generator().manual_seed(job.seed + 1)
        prompts = torch.randint(0, job.shape.vocabulary, (quality.PROMPTS, quality.LENGTH), generator=generator)
        if job.dtype not in ("int8", "int4"):
            if self._reference is None:
                self._reference = torch.cat([engine.logits(prompt[None]) for prompt in prompts])
        elif self._reference is not None:
            logits = torch.cat([engine.logits(prompt[None]) for prompt in prompts])
            _say("quality", **asdict(quality.compare(self._reference, logits)))

    def _tflops(self, dtype: str) -> float | None:
        """Return the measured speed of products in the format that a long prompt is computed in."""
        wide = torch.float32 if self._device.type == "cpu" else _MATRIX.get(dtype, torch.bfloat16)
        return self._roof.tflops(wide)


def _engine(name: str) -> Any:
    if name == "llama.cpp":
        from paddock.bench.engine.llama_engine import LlamaEngine

        return LlamaEngine()
    return TorchEngine()


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
    if int(os.environ.get("RANK", "0")) == 0:
        sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
