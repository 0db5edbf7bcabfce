"""Results of a benchmark as they come from its workers, and the document of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from paddock.bench.engines.door import BenchJob, model_of
from paddock.bench.measurement import environment as surroundings
from paddock.bench.measurement.watch import Watched
from paddock.bench.report.model import BenchDocument, Problem, Result
from paddock.bench.runner import results
from paddock.bench.runner.devices import BenchDevice
from paddock.bench.runner.plan import Options
from paddock.bench.runner.process import WorkerFailed, events
from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.model import Inventory
from paddock.models import random_gguf
from paddock.modes import metrics
from paddock.modes.limiter import Statistics

Notify = Callable[[str], None]
_Cell = tuple[str, str, int, int]
"""Mode, dtype, batch and prompt length."""


class Collected:
    """Results of the workers so far, and what became of their jobs."""

    def __init__(
        self, options: Options, machine: Inventory, chosen: tuple[BenchDevice, ...], kind: str, notify: Notify
    ) -> None:
        self.options, self.chosen, self.notify = options, chosen, notify
        self.watched = Watched()
        self.refused_for_memory = 0
        self._ended, self._current = Statistics(), Statistics()
        self.idle_watts: float | None = None
        self._kind = kind
        self._environment = surroundings.environment(machine)
        if options.instance:
            self._environment["instance"] = options.instance
        self._results: dict[_Cell, Result] = {}
        self._cells: dict[_Cell, dict[str, Any]] = {}
        self.problems: list[Problem] = []
        self.doubts: list[str] = []

    def work(self, jobs: list[BenchJob], environ: Mapping[str, str], silent_for: float) -> None:
        """Measure the jobs; when a worker dies, its job is a problem and the others continue in a new one."""
        rest = list(jobs)
        while rest:
            current, loaded = 0, {}
            try:
                with closing(events(rest, environ, silent_for)) as stream:
                    for event in stream:
                        match event.pop("event"):
                            case "job":
                                current = event["number"]
                                self._end()  # each job has a limiter of its own
                                self.notify(f"{_title(rest[current])}: {_loading(rest[current])}")
                            case "compiles":
                                cell = f"batch {event['batch']}, prompt {event['prompt']}"
                                self.notify(f"{_title(rest[current])}: {cell}: compiling its step")
                            case "loaded":
                                loaded = event
                            case "waits":
                                self.notify(f"waiting for the other benchmark at port {self.options.in_turn}")
                            case "statistics":
                                self._current = Statistics(**event)
                            case "cell":
                                self._add(rest[current], loaded, event)
                            case "failed":
                                self._fail(rest[current], event["message"], event["code"])
                return
            except WorkerFailed as error:
                self._fail(rest[current], str(error), 1)
                rest = rest[current + 1 :]
            finally:
                self._end()

    def statistics(self) -> Statistics:
        """Return what the resource modes did: to workers that ended, and to the one that runs."""
        return replace(self._ended + self._current, vram_limit_errors=self.refused_for_memory)

    def _end(self) -> None:
        self._ended, self._current = self._ended + self._current, Statistics()

    def document(self, complete: bool, notes: list[str]) -> BenchDocument:
        options, shape = self.options, self.options.shape
        model = model_of(shape, options.source)
        measured = tuple(
            result.model_copy(update={"doubts": (*result.doubts, *self.doubts)}) for result in self._results.values()
        )
        return BenchDocument(
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            complete=complete,
            trusted=complete and not self.problems and not any(result.doubts for result in measured),
            command={
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(options).items()
                if name not in ("shape", "modes", "user")
            },
            model={
                **asdict(shape),
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "counted_by": model.source,
                "stored": model.format if options.source else None,
                "weights": options.source or f"random, seed {options.seed}: its text means nothing",
            },
            device={
                "kind": self._kind,
                "name": self.chosen[0].name if self.chosen else self._environment["processor"],
                "count": len(self.chosen) or 1,
                "catalogue": self._catalogued.key if self._catalogued else None,
                "uuids": [device.uuid for device in self.chosen],
                "idle_watts": self.idle_watts,
            },
            engine=options.engine,
            environment=self._environment,
            results=measured,
            knees=results.knees(measured),
            statistics=metrics.values(self.statistics()),
            problems=tuple(self.problems),
            clocks=tuple(asdict(sample) for sample in self.watched.samples),
            notes=tuple(notes),
        )

    @property
    def _catalogued(self) -> Any:
        """The catalogue's entry of the GPUs; None for one that it lacks, and for a part of one."""
        first = self.chosen[0] if self.chosen else None
        return catalog_entry(first.gpu) if first and first.part is None else None

    def _add(self, job: BenchJob, loaded: Mapping[str, Any], cell: Mapping[str, Any]) -> None:
        options = self.options
        context = results.Context(
            self._environment, self._catalogued, len(self.chosen), options.region, self.idle_watts
        )
        place = (job.mode, job.dtype, int(cell["batch"]), int(cell["prompt"]))
        began = float(cell["began"])
        samples = {
            **cell,
            "sessions": [len(cell["runs"])],
            "sessions_at": [cell["started_at"]],
            "sampled_joules": self.watched.joules(began, began + float(cell["seconds"])),
        }
        if earlier := self._cells.get(place):
            samples = results.merged(earlier, samples)
        result = results.result(job, loaded, samples, context)
        self._cells[place], self._results[place] = samples, result
        self.notify(
            f"{_title(job)}: batch {cell['batch']}, prompt {cell['prompt']}: {result.tokens_per_s:.1f} tokens/s"
        )

    def failed(self, job: BenchJob) -> bool:
        """Return whether the job has failed in an earlier session."""
        return any((problem.dtype, problem.mode) == (job.dtype, job.mode or None) for problem in self.problems)

    def _fail(self, job: BenchJob, message: str, code: int) -> None:
        self.problems.append(Problem(dtype=job.dtype, mode=job.mode or None, message=message, code=code))
        self.notify(f"{_title(job)}: {message}")


def _loading(job: BenchJob) -> str:
    if job.source or job.engine != "llama.cpp":
        return "loading"
    size = random_gguf.nbytes(job.shape, job.dtype)
    volume = f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
    return f"writing {volume} of random weights, and loading them"


def _title(job: BenchJob) -> str:
    return f"{job.shape.name} {job.dtype} {job.mode}".rstrip()
