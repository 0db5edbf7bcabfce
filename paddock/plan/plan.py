"""A plan: what a stack would be, whether its runners fit, and what its owner should know before it costs money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from paddock import catalog
from paddock.fleet import NewNetwork, Stack
from paddock.fleet.model.github import IN_CONFIG
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.sizing.capacity import Resources
from paddock.plan import fit, quota, rules
from paddock.plan.compatibility import software, verdict
from paddock.plan.cost import estimate as cost
from paddock.plan.cost import rightsizing
from paddock.plan.document.fleet import describe, provenance
from paddock.plan.document.saved import SCHEMA
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import shown
from paddock.plan.finding import Finding

_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Use:
    """What a month is reckoned with. `jobs_per_month` is of each runner; None: half of them busy in working hours."""

    job_minutes: float = 30
    jobs_per_month: float | None = None


USUAL = Use()


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


def make(stack: Stack, today: date, *, root: Path | None = None, use: Use = USUAL) -> Plan:
    """Plans a stack. `today` decides which facts are too old, `root` is where rules about files look.

    Raises PlanError and FleetError.
    """
    accepted = rules.suppressions(stack.config, today, stack.locate)
    fleet, graph = stack.fleet, plan_graph(stack)
    fits = fit.fit(fleet)
    verdicts = software.check(fleet, today)
    evaluation = rules.evaluate(graph, fleet, accepted, today, root=root)
    costs = cost.estimate(
        fleet, graph, fits, job_minutes=use.job_minutes, jobs_per_month=use.jobs_per_month, today=today
    )
    sizes = rightsizing.right_size(fleet)
    needs = quota.need(fleet)
    found = (
        *fit.findings(fleet, fits),
        *verdict.findings(verdicts),
        *evaluation.findings,
        *cost.findings(costs),
        *rightsizing.findings(fleet, sizes),
        *quota.findings(needs),
        *_configuration(stack),
        *_catalogue_age(today),
    )
    worst_first = tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))
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
    for name in fleet.pools:
        if fleet.holds("runners") and not any(fleet.runners_on(name)):
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


def document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data. CPU and memory are Kubernetes quantities, secrets are hidden."""
    fleet = plan.stack.fleet
    return {
        "schema": SCHEMA,
        "stack": plan.stack.name,
        "project": plan.stack.project,
        "fleet": {"name": fleet.name, "region": fleet.region, "kubernetes": fleet.cluster.version},
        **describe(fleet),
        "resources": [_resource(resource) for resource in plan.graph.resources.values()],
        "outputs": shown(plan.graph.outputs),
        "lookups": [{"token": token, "arguments": shown(arguments)} for token, arguments in plan.graph.lookups],
        "fit": [_fit(each) for each in plan.fits],
        "compatibility": [each.document() for each in plan.compatibility],
        "rules": _rules(plan.rules),
        "cost": cost.document(plan.cost),
        "right_size": [each.document() for each in plan.sizes],
        "quota": [each.document() for each in plan.quota],
        "findings": [
            {"id": f.id, "severity": f.severity, "subject": f.subject, "message": f.message, "fix": f.fix}
            for f in plan.findings
        ],
        **provenance(plan.today),
    }


def _rules(evaluation: rules.Evaluation) -> dict[str, Any]:
    return {
        "evaluated": [{"id": id_, "title": rules.RULES[id_].title} for id_ in evaluation.evaluated],
        "suppressed": [
            {
                "rule": each.violation.rule.id,
                "resource": each.violation.hit.subject,
                "reason": each.suppression.reason,
                "expires": each.suppression.expires.isoformat(),
            }
            for each in evaluation.suppressed
        ],
        "unseen": [
            {"rule": each.rule, "subject": each.subject, "property": each.property} for each in evaluation.unseen
        ],
    }


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "urn": resource.urn,
        "type": resource.type,
        "name": resource.name,
        "parent": resource.parent,
        "custom": resource.custom,
        "inputs": shown(resource.inputs),
        "dependencies": list(resource.dependencies),
        "propertyDependencies": {key: list(urns) for key, urns in resource.property_dependencies.items()},
        "provider": resource.provider,
        "protect": resource.protect,
        "ignoreChanges": list(resource.ignore_changes),
        "deleteBeforeReplace": resource.delete_before_replace,
        "expanded": resource.expanded,
    }


def _fit(each: fit.Fit) -> dict[str, Any]:
    return {
        "runner": each.runner,
        "pool": each.pool,
        "instance": each.instance,
        "per_node": each.per_node,
        "limiting": each.limiting,
        "slack": _amounts(each.slack),
        "stranded_gpus": each.stranded_gpus,
        "request": _amounts(each.request),
        "available": _amounts(each.available),
        "deficit": _amounts(each.deficit),
        "memory": each.source,
        "cautious_per_node": each.cautious_per_node,
    }


def _amounts(amount: Resources) -> dict[str, Any]:
    return {
        "cpu": format_cpu(amount.cpu_m),
        "memory": format_memory(amount.memory_mib),
        "gpus": amount.gpus,
        "pods": amount.pods,
        "ephemeral_storage": format_memory(amount.ephemeral_mib),
    }
