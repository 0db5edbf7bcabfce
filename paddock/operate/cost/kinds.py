"""Kinds of what was charged: how it was bought, and what of an account's bill carries no tag of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from paddock.operate.cost.bill import RESERVATION, SAVINGS_PLAN, Charge, Reading
from paddock.operate.cost.report import LeftOut, Part

_COVERED = {SAVINGS_PLAN: "Savings Plan", RESERVATION: "reservation"}
_USED: Final = ("usage", *_COVERED)
"""Record types of use, which carries the tags of its resource."""
_LEFT_OUT = {
    "savingsplannegation": "takes back the price on demand of use that a Savings Plan covers",
    "savingsplanrecurringfee": "hourly commitment of Savings Plans, used or not",
    "savingsplanupfrontfee": "upfront payment of Savings Plans",
    "recurring": "hourly fee of reservations, used or not",
    "rifee": "hourly fee of reservations, used or not",
    "upfront": "upfront payment of reservations",
    "fee": "upfront payment of reservations and subscriptions",
    "credit": "credits",
    "refund": "refunds",
    "support": "AWS Support",
    "tax": "taxes",
    "bundleddiscount": "discount of one service for the use of another",
    "edpdiscount": "discount of the payer's contract",
    "enterprisediscountprogramdiscount": "discount of the payer's contract",
    "privateratediscount": "discount of the payer's contract",
    "solutionproviderprogramdiscount": "discount of a reseller",
    "distributordiscount": "discount of a reseller",
    "otheroutofcyclecharges": "charges outside the month, such as a new subscription",
}
"""Record types that mostly carry no tag (docs.aws.amazon.com/cur/latest/userguide/Lineitem-columns.html and Cost
Explorer's filter "Charge type", read 2026-11-28)."""
_LEAST = 0.005


def parts(name: str, charges: Sequence[Charge], covered: Sequence[Charge], *, known: bool) -> Iterator[Part]:
    """Yield the charges of a pool, or of all else, by how they were bought; together they are the whole sum.

    `known` is false where Cost Explorer did not say what is covered.
    """
    instances = [charge for charge in charges if charge.instance and not charge.spot]
    rest = [charge for charge in charges if not charge.instance and not charge.extended_support]
    took = [(kind, [charge for charge in covered if charge.record == record]) for record, kind in _COVERED.items()]
    demand = "on demand" if known else "on demand or covered"
    yield from _part(name, "spot", [charge for charge in charges if charge.spot and charge.instance])
    rest_of = _part(name, demand, instances, [charge for _, some in took for charge in some])
    # A price other than the unblended one is not the price on demand, whatever the record types say.
    for part in rest_of:
        differs = abs(part.usd - part.unblended_usd) > _LEAST
        yield replace(part, kind="on demand or covered") if differs else part
    for kind, some in took:
        yield from _part(name, kind, some)
    yield from _part(name, "extended support", [charge for charge in charges if charge.extended_support])
    yield from _part(name, "other", rest, hours=False)


def _part(
    name: str, kind: str, charges: Sequence[Charge], less: Sequence[Charge] = (), *, hours: bool = True
) -> Iterator[Part]:
    usd = sum(charge.usd for charge in charges) - sum(charge.usd for charge in less)
    unblended = sum(charge.unblended for charge in charges) - sum(charge.unblended for charge in less)
    quantity = sum(charge.quantity for charge in charges) - sum(charge.quantity for charge in less)
    if max(abs(usd), abs(unblended), abs(quantity) if hours else 0.0) < _LEAST:
        return
    yield Part(
        of=name,
        kind=kind,
        usd=round(usd, 2),
        unblended_usd=round(unblended, 2),
        hours=round(quantity, 2) if hours else None,
        usd_an_hour=round(usd / quantity, 4) if hours and quantity > _LEAST else None,
    )


def left_out(fleet: str, reading: Reading) -> Iterator[LeftOut]:
    """Yield what the fleet's tag leaves out of the unblended bill of all accounts that Cost Explorer shows."""
    others = [record for record in reading.records if record.name != fleet]
    sums: dict[str, float] = {}
    for record in others:
        key = "Usage" if record.record in _USED else record.type
        sums[key] = sums.get(key, 0.0) + record.unblended
    meanings = {record.type: _LEFT_OUT.get(record.record, "") for record in others}
    for type_, usd in sorted(sums.items(), key=lambda item: -abs(item[1])):
        if abs(usd) >= _LEAST:
            use = "use of all that does not carry the tag of this fleet"
            meaning = use if type_ == "Usage" else meanings[type_]
            yield LeftOut(
                record_type=type_, usd=round(usd, 2), meaning=meaning or "a record type that is not known here"
            )
