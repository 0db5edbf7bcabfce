"""The result document. What is not known is None, never 0."""

from __future__ import annotations

from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from paddock.bench.measurement.cost import TokenCost
from paddock.bench.measurement.statistics import Summary

Value = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Metric(Part):
    """One metric, in `unit`: the value of each run, and the median of those of each session, a process of its own."""

    unit: str
    better: Literal["higher", "lower"]
    runs: tuple[Value, ...] = Field(min_length=1)
    sessions: tuple[Value, ...] = ()
    gates: bool = False
    """Whether a comparison may fail by it. Where no metric of a result gates, all do."""

    @property
    def samples(self) -> tuple[float, ...]:
        """Values that are independent of each other: one a session, as runs of one process share its luck."""
        return self.sessions or (median(self.runs),)

    @property
    def runs_by_session(self) -> tuple[tuple[float, ...], ...]:
        """Runs of each session, which are equally many; none where they are not."""
        runs, rest = divmod(len(self.runs), len(self.samples))
        return () if rest else tuple(self.runs[i : i + runs] for i in range(0, len(self.runs), runs))


class Roofline(Part):
    """Part of the physical limit that was reached, against the data sheet and against what was measured with it.

    `measured_gbs` is the median of the reads with this result, from which `of_measured` follows; the lowest and the
    highest say how much the machine's bandwidth changed meanwhile.
    """

    weight_bytes: int
    bytes_per_step: float
    flop_per_step: float
    achieved_gbs: float
    measured_gbs: float | None
    measured_low_gbs: float | None
    measured_high_gbs: float | None
    datasheet_gbs: float | None
    of_measured: float | None
    of_datasheet: float | None
    prefill_tflops: float
    measured_tflops: float | None
    prefill_of_measured: float | None
    prefill_of_datasheet: float | None
    bound: Literal["memory", "arithmetic"] | None
    """What bounds a step; None where nothing here measures its products: `of_measured` is then of the reads alone."""
    ridge_batch: float | None


class Energy(Part):
    """Energy of the whole cell in joules: idle power included, and `net` of it.

    `sampled_joules` is the sum of power readings meanwhile, which should be the same.
    """

    joules: float
    joules_per_token: float
    kwh_per_million: float
    net_joules_per_token: float | None
    sampled_joules: float | None
    source: str


class Result(Part):
    """One batch and length of one dtype in one mode."""

    key: dict[str, str | int | None]
    metrics: dict[str, Metric]
    sessions_at: tuple[float, ...] = ()
    """Unix time at which each session began to measure: it says which were measured in turn with another build's."""
    in_turn: bool = False
    """Each run of each session was measured in turn with one of another build."""
    ttft: Summary
    tpot: Summary
    gaps: Summary
    request_ms: Summary
    """Whole requests: the mode's pause, the prompt and all new tokens."""
    gap_samples: tuple[float, ...]
    """Some of the gaps in order of their length, evenly many between each two: the shape of their distribution."""
    prefill_tokens_per_s: float
    tokens_per_s: float
    memory_bytes: int
    load_s: float
    quantise_s: float
    compile_s: float
    kernel: str
    step: str
    roofline: Roofline
    energy: Energy | None
    cost: tuple[TokenCost, ...]
    harness_overhead: float
    launching: float
    """Part of a step that launching it takes; on a GPU that is near 1 the GPU waits."""
    clocks: float | None = None
    """Seconds of decoding by our clock over those by the engine's own; None where it has none."""
    throttled_s: float
    device_share: float
    """Part of the time in which a request ran, which a mode's pauses take the rest of."""
    doubts: tuple[str, ...]
    """Reasons not to trust this result."""
    notes: tuple[str, ...] = ()

    @property
    def batch(self) -> int:
        """Rows at once."""
        return int(self.key["batch"] or 1)


class Knee(Part):
    """The batch above which more rows add less than 5 % of throughput, in one dtype, mode and prompt length."""

    dtype: str
    mode: str | None
    prompt: int
    batch: int
    tokens_per_s: float


class Problem(Part):
    """Job that could not be measured."""

    dtype: str
    mode: str | None
    message: str
    code: int = 1


class BenchDocument(Part):
    """Results of one benchmark with the environment that makes them repeatable."""

    schema_version: Literal[1] = 1
    kind: Literal["paddock-bench"] = "paddock-bench"
    taken_at: str
    complete: bool
    trusted: bool
    """Complete, without problems, and no result has a reason for doubt."""
    command: dict[str, Any]
    model: dict[str, Any]
    device: dict[str, Any]
    engine: str
    environment: dict[str, Any]
    results: tuple[Result, ...]
    knees: tuple[Knee, ...] = ()
    statistics: dict[str, float] = {}
    """Requests, and those that resource modes delayed or that the memory refused, under the metrics' names."""
    problems: tuple[Problem, ...] = ()
    clocks: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 0 where everything was measured, 2 for input that made nothing measurable, 130 when interrupted."""
        if not self.complete:
            return 130
        if not self.problems:
            return 0
        return 2 if not self.results and all(problem.code == 2 for problem in self.problems) else 1
