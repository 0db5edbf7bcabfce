"""Cost of served models: a replica's share of a node, with the fewest and the most replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paddock.fleet import Fleet, ServedModel
from paddock.plan.cost.money import HOURS_A_MONTH, Money, unknown
from paddock.plan.cost.nodes import Offer, Range, spread
from paddock.plan.serving.fit import ServedFit


@dataclass(frozen=True, slots=True)
class ServedCost:
    """USD/hour of a replica, and USD/month of the fewest and the most replicas all month.

    A replica costs its share of a node that is full of its kind.
    """

    model: str
    replica_hour: Range
    idle_month: Range
    most_month: Range


def served_costs(
    fleet: Fleet, offers: Mapping[str, Sequence[Offer]], fits: Iterable[ServedFit]
) -> tuple[ServedCost, ...]:
    """Return the cost of every served model; `offers` are the nodes of each pool."""
    fits = tuple(fits)
    return tuple(_cost(fleet, model, offers, fits) for model in fleet.served)


def _cost(
    fleet: Fleet, model: ServedModel, offers: Mapping[str, Sequence[Offer]], fits: tuple[ServedFit, ...]
) -> ServedCost:
    per_node = {(fit.pool, fit.instance): fit.per_node for fit in fits if fit.model == model.name}
    shares: list[tuple[Money, float]] = [
        (offer.node_hour, 1 / count)
        for pool in model.pools
        for offer in offers[pool]
        if (count := per_node[pool, offer.instance])
    ]
    reason = "it fits on none of its pools' types" if fleet.owns_nodes else "its nodes already exist"
    nothing = unknown(f"model {model.name}: {reason}", "USD/hour")
    hour = spread(shares) if shares else Range(nothing, nothing, nothing)

    def month(replicas: int) -> Range:
        return hour.times(replicas * HOURS_A_MONTH, "USD/month")

    return ServedCost(model.name, hour, month(model.replicas.min), month(model.replicas.max))
