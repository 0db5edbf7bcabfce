"""Served models: what a replica takes of GPUs and nodes, and what the fewest and the most cost."""

from __future__ import annotations

from paddock.plan.document.model import PlanDocument
from paddock.plan.output.format import cores, gibibytes, money
from paddock.plan.output.html.markup import Child, Html, section, table, tag

_NOTE = (
    "A replica is a pod with its own GPUs. Its memory on each GPU is weights, cache and a tenth on top, of what its "
    "resource mode allows."
)


def served(document: PlanDocument) -> Html | None:
    """Return the served models on the types of their pools; None without any."""
    if not document.served:
        return None
    columns = [
        ("Model", ""), ("Replicas", ""), ("Pod", ""), ("Pool", ""), ("Node", ""), ("Replicas a node", "n"),
        ("Memory of each GPU", ""), ("A month idle", "n"), ("A month at most", "n"),
    ]  # fmt: skip
    costs = {cost.model: cost for cost in document.cost.served} if document.cost else {}
    body: list[list[Child]] = []
    for model in document.served:
        cost = costs.get(model.name)
        for fit in (fit for fit in document.served_fit if fit.model == model.name):
            memory = f"{gibibytes(fit.needed)} of {gibibytes(fit.allowed)}"
            none = tag("span", "none, for lack of ", fit.limiting, class_="bad")
            body.append(
                [
                    f"{model.name}: {model.model} {model.dtype}",
                    f"{model.min}\u2013{model.max}",
                    f"{model.gpus} GPU, {cores(fit.request.cpu)} CPU, {gibibytes(fit.request.memory)}",
                    fit.pool,
                    fit.instance,
                    str(fit.per_node) if fit.per_node else none,
                    tag("span", memory, class_="bad") if fit.lacking else memory,
                    money(cost.idle_month.expected) if cost else "unknown",
                    money(cost.most_month.expected) if cost else "unknown",
                ]
            )
    what = "What replicas take and cost"
    return section("serving", "Served models", table(what, columns, body, hide_caption=True), note=_NOTE)
