"""Cost of a period. None is not known, and never zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from paddock.console.table import table
from paddock.operate.report import OfFleet

_MOST_ROWS = 10
_OF_JOBS = ("GPU-hours", "used", "idle", "USD")
_OF_WORKFLOWS = ("hours", "share", "USD")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Answer of Cost Explorer. `usd` is None where there was none, or where nothing carries the fleet's tag."""

    usd: float | None
    """Amortised: use that a Savings Plan or a reservation covers, at what that costs."""
    net_usd: float | None
    """`usd` with the discounts of the payer's own contract."""
    unblended_usd: float | None
    """What each use was charged on its day: the price on demand where a Savings Plan covers it, nothing where a
    reservation does."""
    estimated: bool
    """AWS says that it may still change at least one of the days."""
    metric: str
    source: str
    requests: int
    requests_usd: float
    """What AWS asks for the requests themselves."""
    unknown: str
    fix: str
    permission: str
    failed: bool
    """True if it could not be read; false where it was read and has nothing."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the bill by how it was bought."""

    of: str
    """A pool, or "all else"."""
    kind: str
    """spot, on demand, Savings Plan, reservation, extended support (of the cluster's Kubernetes) or other; "on demand
    or covered" where Cost Explorer did not say which."""
    usd: float
    unblended_usd: float
    hours: float | None
    """None for what is not counted in hours."""
    usd_an_hour: float | None
    """Effective price."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A sum that does not carry the fleet's tag, of one record type, in all accounts that this Cost Explorer shows."""

    record_type: str
    usd: float
    """Unblended."""
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """Estimated and actual cost of a part in the period."""

    name: str
    estimate_usd: float | None
    estimate_as_of: date | None
    """Day of the oldest price in it."""
    actual_usd: float | None
    ratio: float | None
    """Actual over estimate."""
    unknown: str


@dataclass(frozen=True, kw_only=True)
class Pool(Line):
    """A pool. Prices of an hour leave the use out: they compare what was paid for a node with what the plan expects."""

    node_hours: float | None
    """Hours of instances, as AWS counts them."""
    estimate_node_hour: float | None
    """Instance alone, of the first type and way to buy."""
    actual_node_hour: float | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """An edit of the stack file. `usd` is its effect on the days of the period, and changes do not add up."""

    pool: str
    message: str
    edit: str
    usd: float
    basis: str
    """What the effect is computed from."""


@dataclass(frozen=True, kw_only=True)
class Waste:
    """GPU-hours that no job had. `needs` is what would make an unknown known."""

    kind: str
    meaning: str
    gpu_hours: float | None
    usd: float | None
    unknown: str
    needs: str
    at_least: bool = False
    """True where there may be more of it, as its source has not seen everything."""


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Mean utilisation of the GPUs of one model, by DCGM."""

    gpu: str
    percent: float


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """Time that a workflow's jobs took on the fleet's runners."""

    repository: str
    workflow: str
    hours: float
    share: float
    usd: float | None
    """Share of the pool's bill, where the fleet has one pool; else durations do not say whose hours they are."""
    gpu_percent: float | None
    """Mean utilisation of the GPUs that its jobs had."""


@dataclass(frozen=True, kw_only=True)
class JobUse:
    """GPUs that the jobs of a workflow had. None is not known, such as the use of GPUs in MIG mode."""

    repository: str
    """`owner/name`."""
    workflow: str
    """Name of its file, without extension."""
    gpu_hours: float
    """Of GPUs that its pods held, while an image was pulled, too."""
    gpu_percent: float | None
    """Mean utilisation, by DCGM."""
    idle_gpu_hours: float | None
    """Of these, those of five minutes and more without any work."""
    usd: float | None
    """Its part of the pool's bill, by the GPU-hours that were paid."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Answer of Prometheus."""

    url: str
    hours: float | None
    """Hours of the period for which it has samples."""
    unknown: str


@dataclass(frozen=True, kw_only=True)
class Cost(OfFleet):
    """All of a period."""

    SCHEMA = "paddock.cost/1"
    region: str
    at: datetime
    start: date
    end: date
    """First day that is not in it; days are UTC's."""
    days: int
    bill: Bill
    pools: tuple[Pool, ...]
    rest: Line
    total: Line
    parts: tuple[Part, ...]
    left_out: tuple[LeftOut, ...]
    left_out_unknown: str
    """Why `left_out`, or what of `parts` is covered, is not known."""
    changes: tuple[Change, ...]
    waste: tuple[Waste, ...]
    utilisation: tuple[Utilisation, ...]
    workflows: tuple[Workflow, ...]
    jobs: tuple[JobUse, ...] = ()
    jobs_unknown: str = ""
    """Why there are none."""
    metrics: Metrics | None
    """None where no Prometheus was named."""
    remarks: tuple[str, ...]
    """`notes` of the document."""

    @property
    def exit_code(self) -> int:
        return int(self.bill.failed)

    def document(self) -> dict[str, Any]:
        document = super().document()
        document["notes"] = document.pop("remarks")
        return document

    @property
    def _bare(self) -> bool:
        """True where all that is left is the plan's estimate, which `plan` shows."""
        return self.bill.failed and self.metrics is None

    def notes(self) -> Iterator[str]:
        if self._bare:
            yield self.bill.unknown
            yield f"    fix: {self.bill.fix}"

    def text(self) -> Iterator[str]:
        if self._bare:
            return
        yield self.heading("Cost", self.region, f"{self.start} until {self.end}, {self.days} days")
        yield ""
        yield from self._bill()
        yield ""
        head = ("USD", "estimate", "actual", "ratio", "node-hours", "USD a node-hour", "estimated")
        rows = [*map(_pool, self.pools), (*_line(self.rest), "", "", ""), (*_line(self.total), "", "", "")]
        yield from table(head, rows, right=head[1:])
        yield from self._kinds()
        yield ""
        yield "Changes with the largest effect on these days"
        for change in self.changes:
            yield f"  {change.usd:.2f} USD  {change.pool}: {change.message}"
            yield f"           edit: {change.edit}"
            yield f"           from: {change.basis}"
        if not self.changes:
            yield "  none is known"
        yield ""
        yield "Waste"
        yield from self._waste()
        yield ""
        yield from self._use()
        yield ""
        for remark in self.remarks:
            yield f"note: {remark}"

    def _bill(self) -> Iterator[str]:
        bill = self.bill
        if bill.usd is None:
            yield f"bill: unknown: {bill.unknown}"
        else:
            changing = ", days may still change" if bill.estimated else ""
            yield f"bill: {bill.usd:.2f} USD, {bill.metric}{changing}  ({bill.source})"
            if bill.unblended_usd != bill.usd:
                yield f"  UnblendedCost: {_number(bill.unblended_usd)} USD, before Savings Plans and reservations"
            if bill.net_usd != bill.usd:
                yield f"  NetAmortizedCost: {_number(bill.net_usd)} USD, with the discounts of the payer's contract"
            if bill.unknown:
                yield f"  pools: unknown: {bill.unknown}"
        if bill.fix:
            yield f"  fix: {bill.fix}"
        if bill.requests:
            requests = "1 request" if bill.requests == 1 else f"{bill.requests} requests"
            yield f"  {requests} to Cost Explorer, for which AWS charges {bill.requests_usd:.2f} USD"

    def _kinds(self) -> Iterator[str]:
        if self.parts:
            head = ("USD", "bought", "amortised", "unblended", "hours", "USD an hour")
            yield ""
            yield from table(head, [_part(part) for part in self.parts], right=head[2:])
        if self.left_out:
            yield ""
            yield "Without the tag of this fleet, unblended, in all accounts that this Cost Explorer shows"
            rows = [(one.record_type, f"{one.usd:.2f}", one.meaning) for one in self.left_out]
            yield from table(("record type", "USD", "what it is"), rows, right=("USD",))
        if self.left_out_unknown:
            yield ""
            yield f"What a Savings Plan covers, and what carries no tag: unknown: {self.left_out_unknown}"

    def _waste(self) -> Iterator[str]:
        shown = ""
        for one in self.waste:
            least = "at least " if one.at_least else ""
            amount = "unknown" if one.gpu_hours is None else f"{least}{one.gpu_hours:.2f} GPU-hours"
            money = "" if one.usd is None else f", {one.usd:.2f} USD"
            reason = f": {one.unknown}" if one.unknown else ""
            yield f"  {one.kind}: {amount}{money}  ({one.meaning}){reason}"
            if one.needs != shown and (shown := one.needs):
                yield f"           known with: {one.needs}"

    def _use(self) -> Iterator[str]:
        if self.metrics is None:
            yield "GPU use and workflows: unknown: no Prometheus was asked; known with: --prometheus URL"
            return
        if self.metrics.hours is None:
            yield f"Prometheus: unknown: {self.metrics.unknown}"
        else:
            yield f"Prometheus has samples of {self.metrics.hours:.1f} of {self.days * 24} hours"
        for gpu in self.utilisation:
            yield f"  {gpu.gpu}: {gpu.percent:.1f} % used on average, by DCGM"
        if self.jobs_unknown:
            yield f"  GPUs by repository: unknown: {self.jobs_unknown}"
        if self.jobs:
            rows = [_job(row) for row in self.jobs[:_MOST_ROWS]]
            yield from table(("repository", "workflow", *_OF_JOBS), rows, right=_OF_JOBS)
            yield ""
        if self.workflows:
            rows = [_workflow(row) for row in self.workflows[:_MOST_ROWS]]
            yield from table(("repository", "workflow", *_OF_WORKFLOWS), rows, right=_OF_WORKFLOWS)
        else:
            yield "  workflows: unknown: Prometheus has no times of jobs in the period"


def _pool(pool: Pool) -> tuple[str, ...]:
    return (
        *_line(pool),
        _number(pool.node_hours, 1),
        _number(pool.actual_node_hour, 4),
        _number(pool.estimate_node_hour, 4),
    )


def _part(part: Part) -> tuple[str, ...]:
    hours = ("", "") if part.hours is None else (_number(part.hours, 1), _number(part.usd_an_hour, 4))
    return part.of, part.kind, _number(part.usd), _number(part.unblended_usd), *hours


def _line(line: Line) -> tuple[str, ...]:
    return line.name, _number(line.estimate_usd), _number(line.actual_usd), _number(line.ratio)


def _job(row: JobUse) -> tuple[str, ...]:
    used = "?" if row.gpu_percent is None else f"{row.gpu_percent:.1f} %"
    hours = f"{row.gpu_hours:.2f}"
    return row.repository, row.workflow, hours, used, _number(row.idle_gpu_hours), _number(row.usd)


def _workflow(row: Workflow) -> tuple[str, ...]:
    return row.repository, row.workflow, f"{row.hours:.2f}", f"{row.share:.0%}", _number(row.usd)


def _number(value: float | None, digits: int = 2) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
