"""The smoke test of this machine, from reading its GPUs to the verdict."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.health import cuda
from paddock.gpu.health.check import check, expected
from paddock.gpu.health.rules import HealthContext
from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.inventory import inventory, sampler
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Gpu, Inventory
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner import cuda_smoke
from paddock.smoke.runner.leasing import leased
from paddock.smoke.runner.watching import Watch, watching
from paddock.smoke.runner.worker import Workers, torch_workers
from paddock.smoke.stages import measured, reported
from paddock.smoke.stages.limits import Limits
from paddock.smoke.stages.measured import Stage
from paddock.smoke.verdict import baselines
from paddock.smoke.verdict.model import Device, Report, StageResult, Tier

NO_TORCH = "torch is not installed here"
_ON_CPU = "this machine has no GPU: the stages ran on its processor, whose speed has no limits"
_TORCH_FIX = "`./inv smoke --tier 2` in a checkout installs it; a machine with cuda-smoke on PATH needs none"
_KIND = {"nvidia": "cuda", "amd": "cuda", "apple": "mps"}
"""torch's name for the devices of a vendor."""

Notify = Callable[[StageResult], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a test. `gpus` are indexes or UUIDs, by default all; `soak` is in seconds."""

    tier: Tier = 2
    gpus: tuple[str, ...] = ()
    expect: str | None = None
    """Instance type, or the number of GPUs."""
    soak: float = 600.0
    baselines: Path | None = None
    python: str = ""
    """Interpreter that has torch; by default this one."""


def run(
    options: Options,
    notify: Notify = lambda _: None,
    *,
    workers: Workers | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Report:
    """Test this machine; an interrupt returns what is known until then, as incomplete.

    Raises GpuError, and SmokeInputError before anything is tested.
    """
    workers = workers or torch_workers(options.python) if options.tier > 1 else None
    context = replace(_context(options.expect), idle=True)
    machine = inventory(processes=True, topology=True)
    chosen = _chosen(machine, options.gpus)
    results = reported.evaluate(machine, check(context=context), cuda.evaluate(machine))
    others = {gpu.uuid for gpu in machine.gpus if gpu not in chosen} - {None}
    first = tuple(result for result in results if result.gpu not in others)
    for result in first:
        notify(result)
    report = Report(machine.taken_at, machine.machine.name, 1, tuple(map(_device, chosen)), first)
    if options.tier == 1:
        return report
    return _work(report, machine, chosen, options, notify, workers, environ)


def _work(
    report: Report,
    machine: Inventory,
    gpus: Sequence[Gpu],
    options: Options,
    notify: Notify,
    workers: Workers | None,
    environ: Mapping[str, str],
) -> Report:
    """Add the stages of tiers 2 and 3 to the report."""
    results, devices, complete = list(report.stages), report.devices, True

    def add(result: StageResult) -> None:
        results.append(result)
        notify(result)

    stages = tuple(_with_soak(stage, options.soak) for stage in measured.STAGES if stage.tier <= options.tier)
    bench = _Bench(stages, workers, environ, options.baselines, add)
    if not machine.gpus:
        devices = (Device("cpu", platform.processor() or platform.machine()),)
    try:
        if machine.gpus:
            bench.test_gpus(gpus, reported.unfit(report.stages))
        else:
            bench.test_cpu(devices[0])
    except KeyboardInterrupt:
        complete = False
    models = {device.uuid: device.name for device in devices}
    return replace(
        report,
        tier=options.tier,
        devices=devices,
        stages=tuple(measured.compare_checksums(results, models)),
        notes=() if machine.gpus or workers is None else (_ON_CPU,),
        complete=complete,
    )


class _Bench:
    """The stages, and what they need to run."""

    def __init__(
        self,
        stages: Sequence[Stage],
        workers: Workers | None,
        environ: Mapping[str, str],
        learned: Path | None,
        add: Notify,
    ) -> None:
        self._stages = stages
        self._workers = workers
        self._environ = environ
        self._learned = learned
        self._add = add

    def test_cpu(self, cpu: Device) -> None:
        if self._workers is None:
            self._skip(cpu, NO_TORCH, _TORCH_FIX)
            return
        environ = _environment(self._environ, visibility_variables(None, ()))
        for stage in self._stages:
            if stage.on_cpu is not None:
                self._run(self._workers, stage, cpu, "cpu", environ, Watch())

    def test_gpus(self, gpus: Sequence[Gpu], unfit: Mapping[str, str]) -> None:
        """Test all GPUs at once, and then together, but for those that are unfit or that others have."""
        fit = {gpu.uuid: gpu for gpu in gpus if gpu.state == "ok" and gpu.uuid and gpu.uuid not in unfit}
        for gpu in gpus:
            if gpu.uuid not in fit:
                reason = unfit.get(gpu.uuid or "", gpu.reason or "it does not answer")
                self._skip(_device(gpu), f"tier 1 failed: {reason}")
        seconds = sum(stage.seconds for stage in self._stages)
        watched = sampler() if fit else None
        with leased(list(fit), seconds, Leases(environ=self._environ)) as refused, watching(watched) as watch:
            for uuid, why in refused.items():
                self._skip(_device(fit[uuid]), f"in use: {why}", "end the lease, or test the machine when it is idle")
            free = [gpu for uuid, gpu in fit.items() if uuid not in refused]
            with ThreadPoolExecutor(max(1, len(free))) as pool:
                try:
                    for done in [pool.submit(self._test_gpu, gpu, watch) for gpu in free]:
                        done.result()
                except KeyboardInterrupt:
                    self._stop()  # or the pool would wait for them
                    raise
            self._test_together(free, watch)

    def _test_gpu(self, gpu: Gpu, watch: Watch) -> None:
        device, program = _device(gpu), cuda_smoke.program()
        environ = _environment(self._environ, visibility_variables(gpu.vendor, (device.uuid,)))
        if self._workers is None and program and gpu.vendor == "nvidia":
            for result in cuda_smoke.run(program, device, environ):
                self._add(result)
        elif self._workers is None:
            self._skip(device, NO_TORCH, _TORCH_FIX)
        else:
            for stage in self._stages:
                if not stage.whole_machine and not self._run(
                    self._workers, stage, device, _KIND[gpu.vendor], environ, watch
                ):
                    return

    def _test_together(self, gpus: Sequence[Gpu], watch: Watch) -> None:
        uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
        for stage in self._stages:
            if not stage.whole_machine or not gpus or self._workers is None:
                continue
            if len(gpus) < 2:
                self._add(StageResult(stage.name, stage.tier, "skip", "it takes two GPUs", uuids[0], gpus[0].index))
                continue
            environ = _environment(self._environ, visibility_variables(gpus[0].vendor, uuids))
            together = Device("all", f"{len(gpus)} x {gpus[0].name}", model=_device(gpus[0]).model)
            more = {"ranks": len(gpus)} if stage.worker == "allreduce" else {}
            self._run(self._workers, stage, together, _KIND[gpus[0].vendor], environ, watch, **more)

    def _run(
        self,
        workers: Workers,
        stage: Stage,
        device: Device,
        kind: str,
        environ: Mapping[str, str],
        watch: Watch,
        **more: Any,
    ) -> bool:
        """Run one stage and add its result; False where the device should be left alone from then on."""
        limits = Limits.of(device.model, baselines.read(self._learned, device.uuid) if self._learned else None)
        parameters = {"device": kind, **((stage.on_cpu if kind == "cpu" else stage.on_gpu) or {}), **more}
        if stage.worker in ("gemm", "load"):
            parameters["precision"] = limits.precision
        start = time.monotonic()
        document = workers.run(stage.worker, parameters, environ, stage.seconds)
        if document.get("interrupted"):
            return False
        seconds = time.monotonic() - start
        seen = watch.since(start, device.uuid) if stage.watched else measured.Watched()
        self._add(measured.judge_document(stage, device, document, limits, seen, seconds))
        return not document.get("hangs")

    def _stop(self) -> None:
        if self._workers:
            self._workers.stop()

    def _skip(self, device: Device, reason: str, fix: str = "") -> None:
        for stage in self._stages:
            if not stage.whole_machine and (device.uuid != "cpu" or stage.on_cpu is not None):
                self._add(StageResult(stage.name, stage.tier, "skip", reason, device.uuid, device.index, fix=fix))


def _context(expect: str | None) -> HealthContext:
    if expect is None:
        return HealthContext()
    return HealthContext(expect=int(expect)) if expect.isdecimal() else expected(expect)


def _chosen(machine: Inventory, names: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the GPUs of these indexes or UUIDs, by default all. Raises SmokeInputError."""
    if not names:
        return machine.gpus
    chosen = []
    for name in names:
        matches = [gpu for gpu in machine.gpus if name == str(gpu.index) or (gpu.uuid or "").startswith(name)]
        if len(matches) != 1:
            indexes = ", ".join(str(gpu.index) for gpu in machine.gpus) or "none: this machine has no GPU"
            problem = "is no GPU of this machine" if not matches else f"fits {len(matches)} GPUs"
            raise SmokeInputError(f"--gpus: {name} {problem}\n    expected: an index or UUID; there are {indexes}")
        chosen.append(matches[0])
    return tuple(dict.fromkeys(chosen))


def _device(gpu: Gpu) -> Device:
    model = catalog_entry(gpu)
    return Device(
        gpu.uuid or f"gpu-{gpu.index}",
        gpu.name or "unnamed",
        gpu.index,
        model.key if model else None,
        gpu.pcie.max_generation,
        gpu.pcie.width,
    )


def _environment(environ: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**environ, **{name: value for name, value in changes.items() if value is not None}}
    return {name: value for name, value in merged.items() if name not in changes or changes[name] is not None}


def _with_soak(stage: Stage, seconds: float) -> Stage:
    if stage.name != "soak":
        return stage
    on_gpu, on_cpu = ({**parameters, "seconds": seconds} for parameters in (stage.on_gpu, stage.on_cpu or {}))
    return replace(stage, on_gpu=on_gpu, on_cpu=on_cpu, seconds=seconds + 100)
