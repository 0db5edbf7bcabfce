"""The bill of a fleet by Cost Explorer: by day, by the tags that the fleet's program sets, by usage and record type.

Amounts are amortised: use that a Savings Plan or a reservation covers counts what that costs. Unblended, it would
count the price on demand (Savings Plan) or nothing (reservation), and its counter-entry carries no tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from paddock.fleet import Fleet
from paddock.operate.sources.aws import AwsReader, NoCredentials
from paddock.operate.sources.unavailable import Unavailable

METRIC: Final = "AmortizedCost"
_METRICS = (METRIC, "NetAmortizedCost", "UnblendedCost", "UsageQuantity")
"""Amounts of `Charge`, in its order."""
REQUEST_USD: Final = 0.01
"""Price of one request of the API (aws.amazon.com/aws-cost-management/aws-cost-explorer/pricing, read 2026-11-24)."""
FLEET_TAG, NAME_TAG = "paddock:fleet", "Name"
ACTIVATE: Final = (
    "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status "
    f"TagKey={FLEET_TAG},Status=Active TagKey={NAME_TAG},Status=Active"
)
SAVINGS_PLAN, RESERVATION = "savingsplancoveredusage", "discountedusage"
_MOST_PAGES = 100
_USES = re.compile(r"(?:^|-)(BoxUsage|SpotUsage|HeavyUsage|Reservation|DedicatedUsage)(?::(?P<type>[a-z0-9.-]+))?$")
"""Usage types of instances: `USW2-SpotUsage:g4dn.xlarge`."""
_BY_FLEET = {"Type": "TAG", "Key": FLEET_TAG}
_BY_NAME = {"Type": "TAG", "Key": NAME_TAG}
_BY_RECORD_TYPE = {"Type": "DIMENSION", "Key": "RECORD_TYPE"}
_BY_USAGE_TYPE = {"Type": "DIMENSION", "Key": "USAGE_TYPE"}


@dataclass(frozen=True, slots=True)
class Charge:
    """One usage type, or record type, of what carries one value of a tag, over the period."""

    name: str
    type: str
    usd: float
    """Amortised."""
    net: float
    """Amortised, with the discounts of the payer's own contract."""
    unblended: float
    quantity: float

    @property
    def instance(self) -> str:
        """Return the instance type, empty for what is not an instance."""
        use = _USES.search(self.type)
        return (use["type"] or "") if use else ""

    @property
    def spot(self) -> bool:
        return "SpotUsage" in self.type

    @property
    def extended_support(self) -> bool:
        """True for hours of a cluster whose Kubernetes is past its standard support."""
        return "extendedsupport" in self.type.lower()

    @property
    def record(self) -> str:
        """Return the record type in letters alone: Cost Explorer writes them with and without spaces."""
        return re.sub(r"[^a-z]", "", self.type.lower())


@dataclass(frozen=True, slots=True)
class Reading:
    """Charges of a period, or why there are none to read."""

    charges: tuple[Charge, ...] = ()
    """By name and usage type, of what carries the fleet's tag."""
    covered: tuple[Charge, ...] = ()
    """Of them what a Savings Plan or a reservation covers, by name and record type."""
    records: tuple[Charge, ...] = ()
    """By the fleet's tag and record type, of all accounts that this Cost Explorer shows."""
    records_error: Unavailable | None = None
    """Why `records`, or `covered`, are not known."""
    estimated: bool = False
    requests: int = 0
    error: Unavailable | None = None

    def of(self, name: str) -> tuple[Charge, ...]:
        return tuple(charge for charge in self.charges if charge.name == name)


def read(reader: AwsReader, fleet: Fleet, start: date, end: date) -> Reading:
    """Read the charges from a day until before another. An error is in the answer, with its fix."""
    explorer = _Explorer(reader, "cn-northwest-1" if fleet.region.startswith("cn-") else "us-east-1", start, end)
    own = {"Tags": {"Key": FLEET_TAG, "Values": [fleet.name], "MatchOptions": ["EQUALS"]}}
    charges: tuple[Charge, ...] = ()
    covered: tuple[Charge, ...] = ()
    records: tuple[Charge, ...] = ()
    failed: Unavailable | None = None
    try:
        charges = explorer.ask(_BY_NAME, _BY_USAGE_TYPE, Filter=own)
    except Unavailable as error:
        return Reading(requests=explorer.requests, error=_explained(error))
    estimated = explorer.estimated
    try:
        records = explorer.ask(_BY_FLEET, _BY_RECORD_TYPE) if charges else ()
        if any(record.name == fleet.name and record.record in (SAVINGS_PLAN, RESERVATION) for record in records):
            every = explorer.ask(_BY_NAME, _BY_RECORD_TYPE, Filter=own)
            covered = tuple(charge for charge in every if charge.record in (SAVINGS_PLAN, RESERVATION))
    except Unavailable as error:
        failed = _explained(error)
    return Reading(charges, covered, records, failed, estimated, explorer.requests)


class _Explorer:
    """Asks for sums of a period, and counts the requests, which AWS charges for."""

    def __init__(self, reader: AwsReader, region: str, start: date, end: date) -> None:
        self._reader, self._region = reader, region
        self._period = {"Start": start.isoformat(), "End": end.isoformat()}
        self.requests, self.estimated = 0, False

    def ask(self, *groups: Mapping[str, str], **more: Any) -> tuple[Charge, ...]:
        """Return sums by a tag and a dimension, over all pages. Raises Unavailable."""
        sums: dict[tuple[str, str], list[float]] = {}
        for group in self._groups({"GroupBy": list(groups), **more}):
            tag, dimension = group["Keys"]
            amounts = sums.setdefault((tag.partition("$")[2], dimension), [0.0] * len(_METRICS))
            for at, metric in enumerate(_METRICS):
                amounts[at] += float(group["Metrics"][metric]["Amount"])
        return tuple(Charge(name, type_, *amounts) for (name, type_), amounts in sorted(sums.items()))

    def _groups(self, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        fixed = {"TimePeriod": self._period, "Granularity": "DAILY", "Metrics": list(_METRICS)}
        for _ in range(_MOST_PAGES):
            self.requests += 1
            try:
                answer = self._reader.read("ce", "get_cost_and_usage", region=self._region, **fixed, **parameters)
            except NoCredentials:
                self.requests -= 1  # nothing was sent, so AWS charges nothing
                raise
            for day in answer.get("ResultsByTime") or ():
                self.estimated = self.estimated or bool(day.get("Estimated"))
                yield from day.get("Groups") or ()
            if not answer.get("NextPageToken"):
                return
            parameters = {**parameters, "NextPageToken": answer["NextPageToken"]}
        many = f"Cost Explorer has more than {_MOST_PAGES} pages for the period"
        raise Unavailable(many, "ask for fewer days with --days")


def _explained(error: Unavailable) -> Unavailable:
    """Return the error with Cost Explorer's own reasons in words."""
    code = getattr(error.__cause__, "code", "")
    if code == "DataUnavailableException":
        return Unavailable(
            "Cost Explorer has no data for these days (DataUnavailableException)",
            "enable Cost Explorer in the Billing console of the account that pays; its first data come within 24 hours",
        )
    if code == "LimitExceededException":
        return Unavailable("Cost Explorer throttles ce:GetCostAndUsage", "run it again in a minute")
    return error
