"""The bill of a fleet by Cost Explorer: by day, by the tags that the fleet's program sets, by usage type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from paddock.fleet import Fleet
from paddock.operate.sources.aws import AwsReader, NoCredentials
from paddock.operate.sources.unavailable import Unavailable

METRIC: Final = "UnblendedCost"
"""What each use was charged on its day. Amortised costs would spread upfront payments of reservations."""
REQUEST_USD: Final = 0.01
"""Price of one request of the API (aws.amazon.com/aws-cost-management/aws-cost-explorer/pricing, read 2026-11-24)."""
FLEET_TAG, NAME_TAG = "paddock:fleet", "Name"
ACTIVATE: Final = (
    "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status "
    f"TagKey={FLEET_TAG},Status=Active TagKey={NAME_TAG},Status=Active"
)
_MOST_PAGES = 100
_USES = re.compile(r"(?:^|-)(BoxUsage|SpotUsage|HeavyUsage|Reservation|DedicatedUsage)(?::(?P<type>[a-z0-9.-]+))?$")
"""Usage types of instances: `USW2-SpotUsage:g4dn.xlarge`."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One usage type of what carries one name, over the period."""

    name: str
    usage_type: str
    usd: float
    quantity: float

    @property
    def instance(self) -> str:
        """Return the instance type, empty for what is no instance."""
        use = _USES.search(self.usage_type)
        return (use["type"] or "") if use else ""

    @property
    def spot(self) -> bool:
        return "SpotUsage" in self.usage_type


@dataclass(frozen=True, slots=True)
class Reading:
    """Charges of a period, or why there are none to read."""

    charges: tuple[Charge, ...] = ()
    estimated: bool = False
    requests: int = 0
    error: Unavailable | None = None

    def of(self, name: str) -> tuple[Charge, ...]:
        return tuple(charge for charge in self.charges if charge.name == name)


def read(reader: AwsReader, fleet: Fleet, start: date, end: date) -> Reading:
    """Read the charges from a day until before another. An error is in the answer, with what mends it."""
    parameters: dict[str, Any] = {
        "TimePeriod": {"Start": start.isoformat(), "End": end.isoformat()},
        "Granularity": "DAILY",
        "Metrics": [METRIC, "UsageQuantity"],
        "Filter": {"Tags": {"Key": FLEET_TAG, "Values": [fleet.name], "MatchOptions": ["EQUALS"]}},
        "GroupBy": [{"Type": "TAG", "Key": NAME_TAG}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"}],
    }
    region = "cn-northwest-1" if fleet.region.startswith("cn-") else "us-east-1"
    sums: dict[tuple[str, str], list[float]] = {}
    estimated, requests = False, 0
    for _ in range(_MOST_PAGES):
        requests += 1
        try:
            answer = reader.read("ce", "get_cost_and_usage", region=region, **parameters)
        except Unavailable as error:
            # Without credentials nothing was sent, so AWS charges nothing.
            sent = requests - isinstance(error, NoCredentials)
            return Reading(requests=sent, error=_explained(error))
        for day in answer.get("ResultsByTime") or ():
            estimated = estimated or bool(day.get("Estimated"))
            for group in day.get("Groups") or ():
                _add(sums, group)
        if not answer.get("NextPageToken"):
            break
        parameters["NextPageToken"] = answer["NextPageToken"]
    else:
        many = f"Cost Explorer has more than {_MOST_PAGES} pages for the period"
        return Reading(requests=requests, error=Unavailable(many, "ask for fewer days with --days"))
    return Reading(tuple(_charges(sums)), estimated, requests)


def _add(sums: dict[tuple[str, str], list[float]], group: dict[str, Any]) -> None:
    tag, usage_type = group["Keys"]
    entry = sums.setdefault((tag.partition("$")[2], usage_type), [0.0, 0.0])
    entry[0] += float(group["Metrics"][METRIC]["Amount"])
    entry[1] += float(group["Metrics"]["UsageQuantity"]["Amount"])


def _charges(sums: dict[tuple[str, str], list[float]]) -> Iterable[Charge]:
    for (name, usage_type), (usd, quantity) in sorted(sums.items()):
        yield Charge(name, usage_type, usd, quantity)


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
