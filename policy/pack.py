"""Every rule of `paddock.plan.rules` as a policy of the whole stack. What holds, and why, is written there only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pulumi
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from paddock import clock
from paddock.fleet import Fleet, FleetError, load, parse
from paddock.plan import rules
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.values import UNKNOWN
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Rule
from paddock.plan.rules.suppressions import Suppression

NAME = "paddock"
ROOT = Path(__file__).parent.parent
Config = Callable[[], Mapping[str, str]]


def publish() -> None:
    """Serves the pack to the engine that started this process."""
    PolicyPack(NAME, list(policies()), EnforcementLevel.MANDATORY)


def policies(config: Config | None = None, today: date | None = None, root: Path = ROOT) -> list[Policy]:
    """One policy a rule; two where a rule also has something milder to say; two for the suppressions.

    The first one only listens. `root` is the folder of the stack files and of what the rules about files look at.
    """
    pack = _Pack(config or pulumi.runtime.get_config_env, today, root)
    policies_: list[Policy] = [_declarations(pack)]
    for rule in rules.RULES.values():
        policies_.append(_policy(rule, rule.severity, pack))
        if rule.milder:
            policies_.append(_policy(rule, "warning", pack))
    return [*policies_, *_suppressions(pack)]


@dataclass(frozen=True, slots=True)
class _Pack:
    """State that all policies share."""

    config: Config
    day: date | None
    root: Path
    declared: dict[str, Any] = field(default_factory=dict)
    """URN -> inputs, as the engine asks about one resource after the other."""

    @property
    def today(self) -> date:
        return self.day or clock.today()

    def evaluate(
        self, graph_: Graph, accepted: tuple[Suppression, ...], only: set[str] | None = None
    ) -> rules.Evaluation:
        _, fleet = self._configuration(graph_)
        return rules.evaluate(graph_, fleet, accepted, self.today, root=self.root, only=only, marks_secrets=False)

    def accepted(self, graph_: Graph) -> tuple[Suppression, ...]:
        """Return the stack's suppressions. Raises FleetError."""
        config, _ = self._configuration(graph_)
        return rules.suppressions(config, self.today)

    def _configuration(self, graph_: Graph) -> tuple[Mapping[str, str], Fleet | None]:
        """Return the stack's configuration and its fleet: from the engine, or from the stack file when it says nothing.

        Recent engines send the configuration in a call of which the SDK for policies keeps only the tags.
        """
        try:
            if config := self.config():
                return config, parse(config, graph_.project, graph_.stack)
            stack = load(self.root, graph_.stack)
        except FleetError:
            return self.config(), None  # the program will refuse it, and say why
        return (stack.config, stack.fleet) if stack.project == graph_.project else ({}, None)


def _declarations(pack: _Pack) -> ResourceValidationPolicy:
    """Remembers inputs. Asked about a stack, the engine tells outputs, and there are none yet in a preview where the
    provider cannot be reached: every Kubernetes object, as long as its cluster is not there."""

    def remember(args: ResourceValidationArgs, report: ReportViolation) -> None:
        pack.declared[args.urn] = {key: value for key, value in _plain(args.props).items() if not key.startswith("__")}

    return ResourceValidationPolicy(
        name="declarations",
        description="Reads what each resource is declared with, for the policies of the whole stack",
        validate=remember,
        enforcement_level=EnforcementLevel.ADVISORY,
    )


def _policy(rule: Rule, severity: Severity, pack: _Pack) -> StackValidationPolicy:
    own = severity == rule.severity

    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        graph_ = graph(args.resources, pack.declared)
        try:
            accepted = pack.accepted(graph_)
        except FleetError:
            accepted = ()  # the policy of the suppressions says so
        for violation in pack.evaluate(graph_, accepted, {rule.id}).violations:
            if (violation.severity == rule.severity) == own:
                text = f"{violation.detail.subject}: {violation.detail.message}\n    fix: {violation.finding.fix}"
                report(text, violation.detail.urn or None)

    return StackValidationPolicy(
        name=rule.id if own else f"{rule.id}-advice",
        description=rule.title,
        validate=validate,
        enforcement_level=EnforcementLevel.MANDATORY if severity == "error" else EnforcementLevel.ADVISORY,
        display_name=f"{rule.id} {rule.title}",
        remediation_steps=rule.fix,
    )


def _suppressions(pack: _Pack) -> list[Policy]:
    def mistakes_and_stale(args: StackValidationArgs, report: ReportViolation) -> None:
        declared = graph(args.resources, pack.declared)
        try:
            pack.accepted(declared)
        except FleetError as error:
            for problem in error.problems:
                report(str(problem), None)
            return
        findings(args, report, rules.STALE)

    def old_ids(args: StackValidationArgs, report: ReportViolation) -> None:
        findings(args, report, rules.RENAMED)

    def findings(args: StackValidationArgs, report: ReportViolation, id_: str) -> None:
        declared = graph(args.resources, pack.declared)
        try:
            accepted = pack.accepted(declared)
        except FleetError:
            accepted = ()
        for finding in pack.evaluate(declared, accepted).findings if accepted else ():
            if finding.id == id_:
                report(f"{finding.subject}: {finding.message}\n    fix: {finding.fix}", None)

    return [
        StackValidationPolicy(
            name=rules.STALE,
            description="Every suppression has a rule, a reason, a day on which it ends, and something to excuse",
            validate=mistakes_and_stale,
            enforcement_level=EnforcementLevel.MANDATORY,
        ),
        StackValidationPolicy(
            name=rules.RENAMED,
            description="Every suppression names its rule by the id of today",
            validate=old_ids,
            enforcement_level=EnforcementLevel.ADVISORY,
        ),
    ]


def graph(resources: Sequence[PolicyResource], declared: Mapping[str, Any]) -> Graph:
    """Return what the engine sends to a policy as the graph that rules read. `declared`: inputs by URN, where known."""
    by_urn = {item.urn: _resource(item, declared) for item in resources}
    urn = next(iter(by_urn), "urn:pulumi:stack::project::type::name")
    stack, project = urn.split("::")[0].removeprefix("urn:pulumi:"), urn.split("::")[1]
    return Graph(project, stack, by_urn, {}, ())


def _resource(source: PolicyResource, declared: Mapping[str, Any]) -> Resource:
    return Resource(
        urn=source.urn,
        type=source.resource_type,
        name=source.name,
        parent=source.parent.urn if source.parent else "",
        custom=source.provider is not None or source.resource_type.startswith("pulumi:providers:"),
        inputs=declared[source.urn] if source.urn in declared else _plain(source.props),
        dependencies=tuple(sorted(dependency.urn for dependency in source.dependencies)),
        property_dependencies={
            key: tuple(sorted(dependency.urn for dependency in targets))
            for key, targets in source.property_dependencies.items()
        },
        provider=f"{source.provider.urn}::id" if source.provider else "",
        protect=source.opts.protect,
        ignore_changes=tuple(source.opts.ignore_changes),
        delete_before_replace=bool(source.opts.delete_before_replace),
    )


def _plain(value: Any) -> Any:
    """Plain data: the engine's proxies raise on what is not known yet, and its numbers are all floats."""
    match value:
        case Mapping():
            return {key: _read(value, key) for key in value}
        case str() | bytes():
            return value
        case Sequence():
            return [_read(value, index) for index in range(len(value))]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _read(container: Any, key: Any) -> Any:
    try:
        return _plain(container[key])
    except UnknownValueError:
        return UNKNOWN
