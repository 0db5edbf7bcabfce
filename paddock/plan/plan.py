"""A plan: what a stack would be, whether its runners fit, and what its owner should know before it costs money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from paddock import catalog
from paddock.fleet import Fleet, NewCluster, NewNetwork, Stack
from paddock.fleet.model.pool import CapacityBlock, Reserved
from paddock.plan import before_up, fit, fit_findings, quota, rules, ways_out
from paddock.plan.compatibility import software, verdict
from paddock.plan.cost import estimate as cost
from paddock.plan.cost import rightsizing
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.finding import Finding, Step
from paddock.plan.serving import fit_findings as serving_findings
from paddock.plan.serving.check import check
from paddock.plan.serving.fit import ServedFit, served_fits

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of runners in a month. `jobs_per_month` is of each runner; None: half are busy in working hours."""

    job_minutes: float = 30.0
    jobs_per_month: float | None = None


DEFAULT_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a plan says; the report, the pages and the JSON document only print it."""

    stack: Stack
    today: date
    graph: Graph
    fits: tuple[fit.Fit, ...]
    served: tuple[ServedFit, ...]
    compatibility: tuple[verdict.Verdict, ...]
    rules: rules.Evaluation
    cost: cost.Cost
    sizes: tuple[rightsizing.RightSize, ...]
    quota: tuple[quota.QuotaNeed, ...]
    findings: tuple[Finding, ...]
    """Worst first."""
    before_up: tuple[Step, ...]
    """What a person does before the first `pulumi up`, in order."""

    @property
    def errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)


def build_plan(stack: Stack, today: date, *, root: Path | None = None, usage: Usage = DEFAULT_USAGE) -> Plan:
    """Plans a stack. `today` decides which facts are too old, `root` is where rules about files look.

    Raises PlanError and FleetError.
    """
    check(stack)
    accepted = rules.suppressions(stack.config, today, stack.locate)
    fleet, graph = stack.fleet, plan_graph(stack)
    fits, served = fit.fit(fleet), served_fits(fleet)
    verdicts = software.check(fleet, today)
    evaluation = rules.evaluate(graph, fleet, accepted, today, root=root)
    costs = cost.estimate(
        fleet, graph, fits, served, job_minutes=usage.job_minutes, jobs_per_month=usage.jobs_per_month, today=today
    )
    sizes = rightsizing.right_size(fleet)
    needs = quota.quota_needs(fleet)
    findings = (
        *fit_findings.findings(fleet, fits),
        *serving_findings.findings(fleet, served),
        *verdict.findings(verdicts),
        *evaluation.findings,
        *cost.findings(costs),
        *rightsizing.findings(fleet, sizes),
        *quota.findings(needs),
        *ways_out.findings(fleet, graph),
        *_configuration(stack, today),
        *_catalogue_age(today),
    )
    worst_first = tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
    steps = tuple(before_up.steps(stack, needs))
    return Plan(stack, today, graph, fits, served, verdicts, evaluation, costs, sizes, needs, worst_first, steps)


def _configuration(stack: Stack, today: date) -> Iterator[Finding]:
    fleet = stack.fleet
    if fleet.holds("cluster") and fleet.owns_nodes:
        yield from _reservations(fleet, today)
    for name, pool in fleet.pools.items():
        if fleet.holds("runners") and not any(fleet.runners_on(pool)) and not fleet.served_on(pool):
            fix = f"runners: {{gpu: {{pool: {name}}}}}"
            yield Finding("CFG003", "info", f"pools.{name}", "no runner uses this pool", fix)
    if fleet.holds("runners") and fleet.runners:
        yield from _private_networks(fleet)


def _reservations(fleet: Fleet, today: date) -> Iterator[Finding]:
    for name, pool in fleet.pools.items():
        if not isinstance(pool.capacity, CapacityBlock | Reserved):
            continue
        ends = pool.capacity.ends if isinstance(pool.capacity, CapacityBlock) else None
        if ends and datetime.fromisoformat(ends).date() < today:
            message = f"the Capacity Block ended on {ends[:10]}: its nodes are gone, and jobs wait for ever"
            fix = f"pools.{name}.capacity: the block that holds now, or another capacity"
            yield Finding("CFG012", "error", f"pools.{name}.capacity", message, fix)
        count = len(pool.zones) or (fleet.network.zone_count if isinstance(fleet.network, NewNetwork) else 1)
        if count > 1:
            message = f"a reservation is in one zone, and the pool buys in {count}: in the others nodes fail to start"
            yield Finding("CFG013", "warning", f"pools.{name}.zones", message, "the zone of the reservation alone")


def _private_networks(fleet: Fleet) -> Iterator[Finding]:
    network = fleet.network
    reached = [f"{cidr} (network.egress.allow)" for cidr in network.egress.allow]
    if isinstance(network, NewNetwork) and network.endpoints:
        reached.append(f"port 443 of {network.cidr}, where the interface endpoints are")
    if fleet.github.kind == "server" and not network.egress.allow:
        yield Finding(
            "CFG006",
            "info",
            "network.egress.allow",
            f"jobs reach {fleet.github.host} only if its address is public: private networks are closed to them",
            "the network that the server is in",
        )
    if reached:
        yield Finding(
            "CFG006",
            "info",
            "network.egress.allow",
            f"jobs reach {' and '.join(reached)}; every other private address, of peers and on premises, is closed",
            "only what jobs need",
        )
    if not isinstance(fleet.cluster, NewCluster):
        yield Finding(
            "CFG007",
            "info",
            "cluster",
            "whether this cluster's network plugin enforces network policies is not known; without it jobs reach every "
            "network that their node does",
            "Calico, Cilium, or enableNetworkPolicy of the VPC CNI",
        )


def _catalogue_age(today: date) -> Iterator[Finding]:
    """Yield one finding for all files; no warning, because nothing in the stack is wrong."""
    if stale := catalog.stale(today):
        files = ", ".join(f"{stamp.file} of {stamp.as_of} ({stamp.age_days(today)} days)" for stamp in stale)
        message = f"facts of the catalogue are old, so newer images or prices may exist: {files}"
        yield Finding("CAT001", "info", "catalog", message, "./inv catalog.refresh")
