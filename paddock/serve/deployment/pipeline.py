"""Pipeline of a model whose layers two devices share, of different backends: one process a stage. Experimental.

Stage 0 is the replica of Ray Serve. It has the embedding and the first layers, and decides who joins and leaves; the
last stage has the output head and gives the tokens. Hidden states go from one to the next as arguments of Ray's calls
to actors: through the hosts' memory, which every backend has, between systems that gloo does not join, and with a dead
stage as an error of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.workers import LOAD_S, START_S, STEP_S, Seat, Worker, Workers, load_rows
from paddock.serve.engine.rows import Rows
from paddock.serve.engine.sampling import Draws
from paddock.serve.errors import first_line
from paddock.serve.own.protocol import Info, Spec


class PipelineReplica(Replica):
    """Replica whose model runs in stages; it is stage 0."""

    def __init__(self, specs: Sequence[Spec], seats: Sequence[Seat], mode: str = "") -> None:
        self._specs, self._seats, self._mode = specs, seats, mode
        super().__init__(specs[0], mode)

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        return load_pipeline(self._seats, (spec, *self._specs[1:]), self._mode)


def load_pipeline(
    seats: Sequence[Seat], specs: Sequence[Spec], mode: str = "", start_seconds: float = START_S
) -> tuple[Info, PipelineRows]:
    """Start all stages, then load each one's layers. Raises ServeError with the stage that did not."""
    workers = Workers(Stage, "stage", seats)
    workers.start(start_seconds)
    loading = [actor.load.remote(spec, mode, 1) for actor, spec in zip(workers.actors, specs[1:], strict=True)]
    info, rows = load_rows(specs[0])
    slots = workers.wait(loading, LOAD_S, "did not load its layers")
    workers.watch()
    return info, PipelineRows(rows, workers, min(rows.slots, *slots))


class PipelineRows:
    """Rows of a pipeline: every step goes through all stages. Raises RankLost, and no step comes after it.

    Raises OutOfMemory where stage 0 has none, before another stage knows of the step.
    """

    def __init__(self, first: Any, workers: Workers, slots: int) -> None:
        self._first, self.workers, self.slots = first, workers, slots

    def join(self, ids: Sequence[int], draws: Draws = ()) -> int | None:
        self.workers.check()
        token: int | None = self._through("join", self._first.join(list(ids)), draws)
        return token

    def decode(self, tokens: Sequence[int], draws: Draws = ()) -> Sequence[int | None]:
        self.workers.check()
        following: Sequence[int | None] = self._through("decode", self._first.decode(list(tokens)), draws)
        return following

    def leave(self, row: int) -> None:
        self.workers.check()
        self.workers.call("step", "leave", row)
        self._first.leave(row)

    def _through(self, name: str, hidden: Any, draws: Draws) -> Any:
        """Hand hidden states from stage to stage, and return what the last one gives, which draws the tokens."""
        import ray

        value = hidden
        for actor in self.workers.actors:
            value = actor.step.remote(name, value, draws)
        try:
            return ray.get(value, timeout=STEP_S)
        except ray.exceptions.GetTimeoutError:
            raise self.workers.lost(f"{self.workers.name(1)} did not answer within {STEP_S:g} s") from None
        except ray.exceptions.RayError as error:
            raise self.workers.lost(f"{self.workers.name(1)} failed: {first_line(error)}") from None


class Stage(Worker):
    """One of the stages from 1 up."""


def stage_specs(specs: Sequence[Spec], counts: Sequence[int]) -> tuple[Spec, ...]:
    """Return the specs of stages with so many layers each."""
    starts = [sum(counts[:number]) for number in range(len(counts))]
    return tuple(
        replace(spec, layers=(start, start + count)) for spec, start, count in zip(specs, starts, counts, strict=True)
    )
