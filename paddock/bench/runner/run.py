"""A whole benchmark on this machine: devices, jobs, workers and the document of results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import groupby
from tempfile import TemporaryDirectory

from paddock.bench.engines.door import BenchJob
from paddock.bench.errors import BenchInputError
from paddock.bench.measurement import energy
from paddock.bench.measurement.watch import Watched, foreign, watching
from paddock.bench.report.model import BenchDocument
from paddock.bench.runner import devices, results
from paddock.bench.runner.collected import Collected, Notify
from paddock.bench.runner.devices import BenchDevice
from paddock.bench.runner.plan import Options, Target, plan
from paddock.gpu.host import resources
from paddock.gpu.host.visibility import showing
from paddock.gpu.inventory import Sampler, inventory, sampler
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Inventory
from paddock.modes import metrics
from paddock.modes.cap import capped, recover
from paddock.modes.policy import GpuCap

_SILENT_FOR = 900.0
"""Seconds without an event after which a worker is taken to hang: a large model compiles for minutes."""
_SPINS = "10000"
"""Rounds for which a thread of OpenMP spins before it sleeps (libgomp's GOMP_SPINCOUNT): about 0.1 ms.

By its default of 300000 one that waits for another holds the CPU that the other needs: next to three programs that
compute, llama.cpp on two threads took 2200 ms a step, and 70 to 190 ms with this; alone as long with either.
"""
_SESSION_S = 3600.0
"""Seconds that one session may take: the lease of the GPUs, which nothing renews, lasts as many."""


def run(
    options: Options,
    notify: Notify = lambda _: None,
    *,
    environ: Mapping[str, str] = os.environ,
    machine: Inventory | None = None,
    silent_for: float = _SILENT_FOR,
) -> BenchDocument:
    """Measure this machine; an interrupt returns what is known until then, as incomplete.

    Raises BenchError before anything is loaded, and GpuError.
    """
    machine = machine or inventory(processes=True)
    here, notes = _devices(options, machine, environ)
    with ExitStack() as stack:
        chosen = stack.enter_context(devices.leased(here, _SESSION_S * options.sessions, environ))
        if options.in_turn is not None and chosen:
            raise BenchInputError(
                "--in-turn: a GPU is leased to one benchmark at a time\n    fix: measure whole sessions in turn, as"
                " docs/bench-compare.md shows, or hide the GPUs (CUDA_VISIBLE_DEVICES=)"
            )
        planned = plan(options, _target(chosen))
        run = Collected(options, machine, chosen, devices.kind(chosen), notify)
        run.problems += planned.problems
        run.refused_for_memory = planned.refused_for_memory
        if options.metrics_port is not None:
            stack.enter_context(metrics.served(run.statistics, options.metrics_port))
        notes += recover([device.uuid for device in chosen], environ)
        samples = sampler() if chosen else None
        run.idle_watts = _idle_watts(samples, chosen, notify)
        watched = run.watched = stack.enter_context(_watching(samples, chosen, environ))
        if sys.platform == "darwin":  # where random weights are a file with a name, which a killed worker leaves
            environ = {**environ, "TMPDIR": stack.enter_context(TemporaryDirectory())}
        complete = _measure(run, planned.jobs, environ, silent_for, notes)
        run.doubts += results.doubts_of_clocks(watched.samples)
        run.doubts += [f"another program was on {name}" for name in dict.fromkeys([*watched.others, *_left(chosen)])]
    return run.document(complete, list(dict.fromkeys(notes)))


def default_engine(
    machine: Inventory, source: str, gpus: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> str:
    """Return the engine where none is asked for: torch on a GPU of NVIDIA's or AMD's, else llama.cpp.

    A .gguf file is llama.cpp's everywhere. Raises BenchInputError for a GPU that is not here.
    """
    if source.endswith(".gguf"):
        return "llama.cpp"
    return "torch" if devices.kind(devices.candidates(machine, gpus, environ)) == "cuda" else "llama.cpp"


def _devices(options: Options, machine: Inventory, environ: Mapping[str, str]) -> tuple[list[BenchDevice], list[str]]:
    """Return the devices that the engine can use, and why it is the CPU where it is. Raises BenchInputError."""
    here = devices.candidates(machine, options.gpus, environ)
    if options.engine == "llama.cpp" and here and here[0].gpu.vendor != "apple":
        return [], [
            "measured on the CPU: this build of llama.cpp is for it, and for Metal; a llama-server with CUDA is"
            " measured by bench.load"
        ]
    if here:
        return here, []
    why = "the environment hides this machine's GPUs" if machine.usable else machine.reason or "no GPU answers"
    return [], [f"measured on the CPU: {why[:1].lower()}{why[1:].rstrip('.')}"]


def _measure(
    run: Collected, jobs: Sequence[BenchJob], environ: Mapping[str, str], silent_for: float, notes: list[str]
) -> bool:
    """Run all sessions of the jobs, and return whether nothing interrupted them."""
    visible = showing(environ, run.chosen[0].gpu.vendor if run.chosen else None, [device.uuid for device in run.chosen])
    visible.setdefault("GOMP_SPINCOUNT", _SPINS)
    if not run.chosen and (threads := run.options.threads or resources.quota_threads()):
        visible.setdefault("OMP_NUM_THREADS", str(threads))
    sessions = run.options.sessions
    try:
        for session in range(sessions):
            if sessions > 1:
                run.notify(f"session {session + 1} of {sessions}")
            again = [job for job in jobs if not run.failed(job)]
            # A process can lower its priority and never raise it again: a mode has one of its own.
            for mode, group in groupby(again, lambda job: job.mode):
                with ExitStack() as caps:
                    if mode:
                        policy = run.options.modes[mode]
                        notes += _cap(caps, mode, policy.gpu, run.chosen, environ)
                    run.work(list(group), visible, silent_for)
    except KeyboardInterrupt:
        return False
    return True


def _target(chosen: Sequence[BenchDevice]) -> Target:
    capability = chosen[0].gpu.compute_capability if chosen and chosen[0].gpu.vendor == "nvidia" else None
    number = None
    if capability:
        with suppress(ValueError):
            major, minor = map(int, capability.split("."))
            number = major, minor
    uuids = tuple(device.uuid for device in chosen)
    return Target(devices.kind(chosen), uuids, devices.room(chosen), number)


def _cap(
    stack: ExitStack, mode: str, cap: GpuCap, chosen: Sequence[BenchDevice], environ: Mapping[str, str]
) -> list[str]:
    """Cap the GPUs until the stack ends, and return what became of it."""
    if cap == GpuCap():
        return []
    if not chosen:
        return [f"{mode}: no GPU to cap"]
    limits = [f"{cap.power_watts} W"] if cap.power_watts else []
    limits += [f"{cap.clock_mhz} MHz"] if cap.clock_mhz else []
    notes = []
    for device in chosen:
        if device.part:
            notes.append(f"{mode}: GPU {device.gpu.index} is not capped: others have parts of it")
            continue
        applied = stack.enter_context(capped(device.uuid, cap, environ))
        outcome = f"capped at {' and '.join(limits)}" if applied.applied else f"not capped: {applied.reason}"
        notes.append(f"{mode}: GPU {device.gpu.index} is {outcome}")
    return notes


def _watching(
    samples: Sampler | None, chosen: Sequence[BenchDevice], environ: Mapping[str, str]
) -> AbstractContextManager[Watched]:
    """Watch the GPUs and, where the driver's pids are this system's, the programs on them."""
    sees = bool(chosen) and Leases(environ=environ).host.sees_driver_pids
    return watching(
        samples,
        [device.gpu.uuid or "" for device in chosen],
        (lambda: inventory(processes=True)) if sees else None,
        parts=[device.uuid for device in chosen if device.part],
    )


def _idle_watts(samples: Sampler | None, chosen: Sequence[BenchDevice], notify: Notify) -> float | None:
    """Return what the GPUs draw before anything is loaded; None where it is not known, as for parts of a GPU."""
    if samples is None or any(device.part for device in chosen):
        return None
    notify("reading the GPU's idle power")
    return energy.idle_watts(samples, [device.uuid for device in chosen])


def _left(chosen: Sequence[BenchDevice]) -> list[str]:
    """Return the programs on the GPUs after the end; ours have ended by now."""
    if not chosen:
        return []
    time.sleep(0.2)
    uuids = [device.gpu.uuid or "" for device in chosen]
    parts = [device.uuid for device in chosen if device.part]
    return list(foreign(inventory(processes=True).gpus, uuids, (), parts))
