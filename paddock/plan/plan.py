"""A plan: what a stack would be, whether its runners fit, and what its owner should know before it costs money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from paddock import catalog
from paddock.fleet import NewNetwork, Stack
from paddock.fleet.model.github import IN_CONFIG
from paddock.plan import fit, fit_findings, quota, rules
from paddock.plan.compatibility import software, verdict
from paddock.plan.cost import estimate as cost
from paddock.plan.cost import rightsizing
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.finding import Finding

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of runners in a month. `jobs_per_month` is of each runner; None: half are busy in working hours."""

    job_minutes: float = 30
    jobs_per_month: float | None = None


DEFAULT_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a plan says; the report, the pages and the JSON document only print it."""

    stack: Stack
    today: date
    graph: Graph
    fits: tuple[fit.Fit, ...]
    compatibility: tuple[verdict.Verdict, ...]
    rules: rules.Evaluation
    cost: cost.Cost
    sizes: tuple[rightsizing.RightSize, ...]
    quota: tuple[quota.QuotaNeed, ...]
    findings: tuple[Finding, ...]
    """Worst first."""

    @property
    def errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)


def build_plan(stack: Stack, today: date, *, root: Path | None = None, usage: Usage = DEFAULT_USAGE) -> Plan:
    """Plans a stack. `today` decides which facts are too old, `root` is where rules about files look.

    Raises PlanError and FleetError.
    """
    accepted = rules.suppressions(stack.config, today, stack.locate)
    fleet, graph = stack.fleet, plan_graph(stack)
    fits = fit.fit(fleet)
    verdicts = software.check(fleet, today)
    evaluation = rules.evaluate(graph, fleet, accepted, today, root=root)
    costs = cost.estimate(
        fleet, graph, fits, job_minutes=usage.job_minutes, jobs_per_month=usage.jobs_per_month, today=today
    )
    sizes = rightsizing.right_size(fleet)
    needs = quota.quota_needs(fleet)
    findings = (
        *fit_findings.findings(fleet, fits),
        *verdict.findings(verdicts),
        *evaluation.findings,
        *cost.findings(costs),
        *rightsizing.findings(fleet, sizes),
        *quota.findings(needs),
        *_configuration(stack),
        *_catalogue_age(today),
    )
    worst_first = tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
    return Plan(stack, today, graph, fits, verdicts, evaluation, costs, sizes, needs, worst_first)


def _configuration(stack: Stack) -> Iterator[Finding]:
    fleet = stack.fleet
    key = "paddock:githubAppKey" if fleet.github.app else "paddock:githubToken"
    if fleet.holds("runners") and fleet.github.secret_source == IN_CONFIG and key not in stack.secrets:
        yield Finding(
            "CFG001",
            "warning",
            key,
            "the credential that runners register with is not set yet; pulumi up will ask for it",
            f"pulumi config set --secret {key}",
        )
    for name, pool in fleet.pools.items():
        if fleet.holds("runners") and not any(fleet.runners_on(pool)):
            fix = f"runners: {{gpu: {{pool: {name}}}}}"
            yield Finding("CFG003", "info", f"pools.{name}", "no runner uses this pool", fix)
    if isinstance(fleet.network, NewNetwork) and fleet.makes_network and fleet.network.nat == "none":
        yield Finding(
            "CFG002",
            "warning",
            "network.nat",
            "without NAT the runners reach GitHub only over a way out that you add to the VPC yourself",
            "network.nat: single",
        )


def _catalogue_age(today: date) -> Iterator[Finding]:
    for stamp in catalog.stale(today):
        yield Finding(
            "CAT001",
            "warning",
            f"catalog/{stamp.file}",
            f"these facts are of {stamp.as_of}, {stamp.age_days(today)} days old",
            "inv catalog.refresh",
        )
