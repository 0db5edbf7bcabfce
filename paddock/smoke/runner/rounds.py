"""Tiers 2 and 3 on the devices under test: all at once, then together, with leases on the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paddock.children import Children
from paddock.gpu.errors import DriverHangs
from paddock.gpu.host.bounded import answer
from paddock.gpu.host.visibility import showing
from paddock.gpu.inventory import inventory, sampler
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Inventory
from paddock.smoke.runner import cuda_smoke
from paddock.smoke.runner.leasing import leased
from paddock.smoke.runner.targets import Target
from paddock.smoke.runner.watching import Watch, watching
from paddock.smoke.runner.worker import Workers
from paddock.smoke.stages import measured, reported
from paddock.smoke.stages.limits import Limits
from paddock.smoke.stages.table import Stage
from paddock.smoke.verdict.model import SmokeDevice, StageResult

NO_TORCH = "torch is not installed here"
TORCH_FIX = (
    "`./inv smoke` in a checkout installs it where it finds the driver's files; a runner image has it by"
    " `./inv images.build runner --with torch`, for --python python3"
)
NO_NUMPY = "numpy is not installed here"
NUMPY_FIX = "`./inv smoke --cpu` in a checkout installs it; --python names another interpreter that has it"
_ALL = SmokeDevice("all", "all GPUs")


@dataclass(frozen=True, slots=True)
class Rounds:
    """Stages to run and what they need. Without `workers` a machine has no torch, or no numpy for the CPU."""

    stages: Sequence[Stage]
    workers: Workers | None
    children: Children
    environ: Mapping[str, str]
    learned: Mapping[str, Mapping[str, float]]
    """Earlier speeds of devices, by UUID."""
    add: Callable[[StageResult], None]

    def test_processor(self, cpu: SmokeDevice) -> None:
        environ = showing(self.environ, None, ())
        for stage in self.stages:
            if stage.on_cpu is None:
                self._skip(stage, cpu, "it takes GPUs", inapplicable=True)
            elif self.workers is None:
                self._skip(stage, cpu, NO_NUMPY, NUMPY_FIX)
            else:
                self._run(self.workers, stage, cpu, "cpu", environ, Watch())

    def test_gpus(self, targets: Sequence[Target], machine: Inventory, unfit: Mapping[str, str]) -> None:
        """Test all devices at once, and then those that passed together. Unfit and leased ones are skipped."""
        fit: dict[str, Target] = {}
        for target in targets:
            if reason := _unfit(target, unfit):
                self._skip_all(target.device, reason)
            else:
                fit[target.device.uuid] = target
        seconds = sum(stage.seconds for stage in self.stages)
        watched = sampler() if fit else None
        with leased(list(fit), seconds, Leases(environ=self.environ)) as refused, watching(watched) as watch:
            for uuid, why in refused.items():
                fix = "end the lease, or test the machine when it is idle"
                self._skip_all(fit[uuid].device, f"in use: {why}", fix)
            free = [target for uuid, target in fit.items() if uuid not in refused]
            with ThreadPoolExecutor(max(1, len(free))) as pool:
                try:
                    running = [(target, pool.submit(self._test, target, watch)) for target in free]
                    passed = [target for target, result in running if result.result()]
                except BaseException:
                    self.children.stop()  # or the pool would wait for them
                    raise
            if not self.children.stopped:
                self._test_together(passed, targets, machine, watch)

    def _test(self, target: Target, watch: Watch) -> bool:
        """Return whether the device passed all of its stages, or could not be tested by some."""
        stages = [stage for stage in self.stages if not stage.whole_machine]
        if self.workers is None:
            return self._test_without_torch(target, stages)
        environ, passed = target.environment(self.environ), True
        for number, stage in enumerate(stages):
            document, result = self._run(
                self.workers, stage, target.device, target.kind, environ, watch, watched=target.gpu.uuid
            )
            passed = passed and result.status != "fail"
            if document.get("hangs") or document.get("interrupted"):
                for left in stages[number + 1 :] if document.get("hangs") else ():
                    self._skip(left, target.device, f"it is left alone after it hung in the stage {stage.name}")
                return False
        return passed

    def _test_without_torch(self, target: Target, stages: Sequence[Stage]) -> bool:
        program = cuda_smoke.program() if target.gpu.vendor == "nvidia" else None
        if program is None:
            self._skip_all(target.device, NO_TORCH, TORCH_FIX)
            return False
        results = cuda_smoke.run(program, target.device, target.environment(self.environ), self.children)
        for result in results:
            self.add(result)
        if self.children.stopped:
            return False
        for stage in stages:
            if stage.name not in cuda_smoke.STAGES:
                self._skip(stage, target.device, f"{NO_TORCH}, and cuda-smoke has no such test", TORCH_FIX)
        return all(result.status != "fail" for result in results)

    def _test_together(
        self, passed: Sequence[Target], tested: Sequence[Target], machine: Inventory, watch: Watch
    ) -> None:
        """Test whole GPUs together: one that failed could hang the others."""
        stages = [stage for stage in self.stages if stage.whole_machine]
        whole = [target for target in passed if not target.part]
        if self.workers is None or len(whole) < 2:
            if len(tested) < 2 or any(target.part for target in tested):
                reason, fix, inapplicable = "it takes two GPUs, and parts of one cannot reach each other", "", True
            elif self.workers is None:
                reason, fix, inapplicable = NO_TORCH, TORCH_FIX, False
            else:
                reason, fix, inapplicable = "it takes two GPUs that passed", "", False
            for stage in stages:
                self._skip(stage, _ALL, reason, fix, inapplicable=inapplicable)
            return
        uuids = tuple(target.device.uuid for target in whole)
        environ = showing(self.environ, whole[0].gpu.vendor, uuids)
        device = SmokeDevice("all", f"{len(whole)} x {whole[0].device.name}", model=_common_model(whole))
        together = measured.Together(tuple(target.gpu.index for target in whole), machine.pairs)
        for stage in stages:
            if not stage.worker:
                self._read_links(machine, uuids)
                continue
            more = {"ranks": len(whole)} if stage.worker == "allreduce" else {}
            document, _ = self._run(
                self.workers, stage, device, whole[0].kind, environ, watch, together=together, more=more
            )
            if document.get("interrupted"):
                return

    def _read_links(self, before: Inventory, uuids: Sequence[str]) -> None:
        try:
            after = answer(lambda: inventory(topology=True))
        except DriverHangs as error:
            evidence, _, fix = str(error).partition("\n")
            self.add(StageResult("nvlink", 3, "fail", evidence, "all", None, "reboot", fix.rpartition("fix: ")[2]))
            return
        for result in reported.links_after_load(before, after, uuids):
            self.add(result)

    def _run(
        self,
        workers: Workers,
        stage: Stage,
        device: SmokeDevice,
        kind: str,
        environ: Mapping[str, str],
        watch: Watch,
        *,
        watched: str | None = None,
        together: measured.Together | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Mapping[str, Any], StageResult]:
        """Run one stage and add its result, unless it was interrupted."""
        limits = Limits.of(device.model, self.learned.get(device.uuid))
        parameters = {"device": kind, **((stage.on_cpu if kind == "cpu" else stage.on_gpu) or {}), **more}
        if stage.worker in ("gemm", "load"):
            parameters["precision"] = limits.precision
        start = time.monotonic()
        run_ = workers.run(stage.worker, parameters, environ, stage.seconds, alone=stage.alone)
        seen = watch.since(run_.began, watched) if stage.watched and watched else measured.Watched()
        seconds = time.monotonic() - start
        result = measured.judge_document(stage, device, run_.document, limits, seen, seconds, together)
        if not run_.document.get("interrupted"):
            self.add(result)
        return run_.document, result

    def _skip_all(self, device: SmokeDevice, reason: str, fix: str = "") -> None:
        for stage in self.stages:
            if not stage.whole_machine:
                self._skip(stage, device, reason, fix)

    def _skip(
        self, stage: Stage, device: SmokeDevice, reason: str, fix: str = "", *, inapplicable: bool = False
    ) -> None:
        self.add(
            StageResult(
                stage.name, stage.tier, "skip", reason, device.uuid, device.index, fix=fix, inapplicable=inapplicable
            )
        )


def _unfit(target: Target, unfit: Mapping[str, str]) -> str:
    """Return why a device is not worked; empty for one that is fit."""
    gpu = target.gpu
    if gpu.state != "ok" or not gpu.uuid:
        return f"tier 1 failed: {unfit.get(gpu.uuid or '', gpu.reason or 'it does not answer')}"
    if gpu.uuid in unfit:
        return f"tier 1 failed: {unfit[gpu.uuid]}"
    if gpu.mig and gpu.mig.enabled and not target.part:
        return "MIG is on, and the GPU has no parts: `nvidia-smi mig` makes them"
    return ""


def _common_model(targets: Sequence[Target]) -> str | None:
    models = {target.device.model for target in targets}
    return models.pop() if len(models) == 1 else None
