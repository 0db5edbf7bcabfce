"""Capacity: jobs on nodes, replicas of served models on theirs, and the fleet in the quotas of a new account."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.html.components import bar, folded, section, swatch, table
from paddock.html.markup import Child, Html, code, join, tag
from paddock.plan.document.model import PlanDocument, Quota
from paddock.plan.output.format import cores, gibibytes, money, quantity
from paddock.plan.output.view import alike, lack

_QUOTAS = "What the fleet needs with every pool at its maximum. What your account has been given, only AWS knows."
_SERVED = (
    "A replica is a pod with its own GPUs. Its memory on each GPU is weights, cache and a tenth on top, of what vLLM "
    "takes in its resource mode."
)


def fit(document: PlanDocument, palette: Mapping[str, int]) -> Html | None:
    if not document.fit:
        return None
    columns = [
        ("Runner", ""),
        ("Node", ""),
        ("Jobs a node", "n"),
        ("Limited by", ""),
        ("GPUs", "bar"),
        ("CPU", "bar"),
        ("Memory", "bar"),
        ("Stranded GPUs", "n"),
        ("Node memory", ""),
    ]
    body = []
    for same in alike(document.fit):
        fit = same[0]
        jobs, request, has = fit.per_node, fit.request, fit.available
        most = max(jobs, 1)
        body.append(
            (
                [_named(other.runner, palette) for other in same],
                fit.instance,
                jobs if jobs else tag("strong", "none", class_="bad"),
                fit.limiting if jobs else tag("span", "lacks ", lack(fit), class_="bad"),
                _use(request.gpus * jobs, has.gpus, f"{request.gpus * most} of {has.gpus}"),
                _use(request.cpu * jobs, has.cpu, f"{cores(request.cpu * most, 1)} of {cores(has.cpu, 1)}"),
                _use(
                    request.memory * jobs,
                    has.memory,
                    f"{request.memory * most / 1024:,.1f}".removesuffix(".0") + f" of {gibibytes(has.memory)}",
                ),
                tag("strong", f"{fit.stranded_gpus:g}", class_="warn") if fit.stranded_gpus else "0",
                fit.memory,
            )
        )
    return section(
        "fit",
        "Fit",
        table("What jobs take of each node", columns, body, hide_caption=True),
        note="What the jobs on a full node take of what it has for jobs. Where none fits, what one requests.",
    )


def _named(runner: str, palette: Mapping[str, int]) -> Html:
    return tag("span", swatch(palette[runner]) if runner in palette else None, runner, class_="pair")


def _use(used: float, has: float, label: str) -> Html:
    share = min(1.0, used / has) if has > 0 else 0.0
    return join(bar(share, f"{share:.0%} used"), tag("span", label))


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
    return section("serving", "Served models", table(what, columns, body, hide_caption=True), note=_SERVED)


def quota(document: PlanDocument) -> Html | None:
    if not document.quota:
        return None
    body = [_row(quota) for quota in document.quota]
    columns = [
        ("Quota", "wide"),
        ("Needed at most", "n"),
        ("A new account", "n"),
        ("Share", "bar"),
        ("Of which", "wide"),
    ]
    requests = [tag("li", code(quota.request)) for quota in document.quota if quota.request]
    commands = folded(f"Commands that ask AWS for more ({len(requests)})", tag("ul", requests))
    rows = table("Quotas of the account", columns, body, hide_caption=True)
    return section("quota", "Quotas", rows, commands if requests else None, note=_QUOTAS)


def _row(quota: Quota) -> list[Child]:
    calmer = quota.need_without_fallback
    without = f"{calmer:,.0f} without fallback" if calmer < quota.need else ""
    return [
        [quota.name, tag("span", quota.code or "", class_="pair note")],
        [quantity(quota.need, quota.unit), tag("span", without, class_="pair note") if without else None],
        quantity(quota.default),
        _share(quota.need, quota.default),
        [_parts(quota), tag("span", quota.note, class_="pair note") if quota.note else None],
    ]


def _parts(quota: Quota) -> Html:
    parts = [f"{part.who} {quantity(part.amount)}" for part in quota.parts]
    more = f" and {len(parts) - 8} more" if len(parts) > 8 else ""
    return join(", ".join(parts[:8]) + more)


def _share(need: float, default: float | None) -> Html:
    if default is None:
        return tag("span", "unknown", class_="note")
    share = need / default if default > 0 else (0.0 if need <= 0 else 2.0)
    over = share > 1
    label = f"{share:.0%} of the default" if default > 0 else "the default is 0"
    verdict = "\u2717 ask for more" if over else "within it"
    drawn = bar(share, label, width=90, class_="over" if over else "use")
    return join(drawn, tag("span", verdict, class_="warn" if over else None))
