"""Rules that a planned stack is held against, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from paddock.fleet import Fleet, FleetError, Problem
from paddock.fleet.stackfile.configuration import SUPPRESSIONS
from paddock.plan.engine.graph import Graph
from paddock.plan.finding import Edit, Finding, Severity
from paddock.plan.rules import (
    cluster,
    consistency,
    gpu_access,
    iam,
    kubernetes,
    labels,
    mirror,
    names,
    network,
    nodes,
    runner_pods,
    serving,
    storage,
    supply_chain,
)
from paddock.plan.rules import suppressions as _suppressions
from paddock.plan.rules.base import Context, Rule, Violation
from paddock.plan.rules.suppressions import Suppression

BASELINE: tuple[Rule, ...] = tuple(
    sorted(
        (
            *cluster.RULES, *network.RULES, *nodes.RULES, *iam.RULES, *storage.RULES, *kubernetes.RULES,
            *runner_pods.RULES, *supply_chain.RULES, *gpu_access.RULES,
            *serving.RULES,
        ),
        key=lambda rule: rule.id,
    )
)  # fmt: skip
"""What is safe."""
CONSISTENCY: tuple[Rule, ...] = (*consistency.RULES, *labels.RULES, *names.RULES, *mirror.RULES)
"""What fits together."""
RULES: Mapping[str, Rule] = {rule.id: rule for rule in (*BASELINE, *CONSISTENCY)}
STALE = "SUP001"
"""Id of the finding about a suppression that excuses nothing."""
RENAMED = "SUP002"
"""Id of the finding about a suppression that names its rule by an old id."""
_FILES = (".github/workflows/*.yml", ".github/workflows/*.yaml", "images/*/Dockerfile", "images/*/*.Dockerfile")


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule, and what breaks it."""

    rule: Rule
    detail: Violation

    @property
    def severity(self) -> Severity:
        return self.detail.severity or self.rule.severity

    @property
    def finding(self) -> Finding:
        detail = self.detail
        return Finding(
            self.rule.id, self.severity, detail.subject, detail.message, detail.fix or self.rule.fix, detail.edits
        )


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A violation that somebody has accepted until a day."""

    violation: RuleViolation
    suppression: Suppression


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that a rule could not judge before the cloud has answered."""

    rule: str
    subject: str
    property: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of evaluating rules on a graph."""

    evaluated: tuple[str, ...]
    """Ids of the rules that looked."""
    violations: tuple[RuleViolation, ...]
    findings: tuple[Finding, ...]
    """Of the violations, and of suppressions that excuse nothing."""
    suppressed: tuple[Suppressed, ...]
    unseen: tuple[Unseen, ...]


def evaluate(
    graph: Graph,
    fleet: Fleet | None,
    suppressions: Iterable[Suppression],
    today: date,
    *,
    root: Path | None = None,
    only: Collection[str] | None = None,
    marks_secrets: bool = True,
) -> Evaluation:
    """Evaluate every rule on a graph, or those named in `only`.

    `root` is where the rules about files look; without it they find nothing to judge. `marks_secrets` is False
    for a graph from an engine, which tells its policies no longer what is secret.
    """
    return check_context(Context(graph, repository_files(root), fleet, today, marks_secrets), suppressions, only)


def check_context(
    context: Context, suppressions: Iterable[Suppression] = (), only: Collection[str] | None = None
) -> Evaluation:
    """Evaluate rules on an existing context."""
    rules = [rule for rule in RULES.values() if only is None or rule.id in only]
    accepted = [suppression for suppression in suppressions if only is None or suppression.rule in only]
    used: set[int] = set()
    violations: list[RuleViolation] = []
    suppressed: list[Suppressed] = []
    unseen: dict[Unseen, None] = {}
    for rule in rules:
        context.unseen.clear()
        for detail in dict.fromkeys(rule.check(context)):
            violation = RuleViolation(rule, detail)
            covering = [suppression for suppression in accepted if suppression.covers(rule.id, detail)]
            used |= {suppression.index for suppression in covering}
            if covering:
                suppressed.append(Suppressed(violation, covering[0]))
            else:
                violations.append(violation)
        unseen |= {Unseen(rule.id, subject, property_): None for subject, property_ in context.unseen}
    # What could not be judged may well be what a suppression is about.
    unjudged = {entry.rule for entry in unseen}
    stale = [_stale(entry) for entry in accepted if entry.index not in used and entry.rule not in unjudged]
    renamed = [entry for entry in accepted if entry.written != entry.rule]
    return Evaluation(
        tuple(rule.id for rule in rules),
        tuple(violations),
        (*(violation.finding for violation in violations), *stale, *map(_renamed, renamed)),
        tuple(suppressed),
        tuple(unseen),
    )


def _stale(suppression: Suppression) -> Finding:
    return Finding(
        STALE,
        "error",
        f"{SUPPRESSIONS}[{suppression.index}]",
        f"{suppression.rule} has nothing to say about {suppression.resource}: the suppression excuses nothing",
        "remove it from the stack file",
        (Edit((SUPPRESSIONS, suppression.index), remove=True),),
    )


def _renamed(suppression: Suppression) -> Finding:
    return Finding(
        RENAMED,
        "warning",
        f"{SUPPRESSIONS}[{suppression.index}]",
        f"{suppression.written} is now called {suppression.rule}",
        f"rule: {suppression.rule}",
        (Edit((SUPPRESSIONS, suppression.index, "rule"), suppression.rule),),
    )


def suppressions(
    config: Mapping[str, str], today: date, locate: Callable[[Iterable[Problem]], Iterable[Problem]] = list
) -> tuple[Suppression, ...]:
    """Return the suppressions in a stack's configuration. Raises FleetError; `locate` finds lines (`Stack.locate`)."""
    try:
        return _suppressions.parse(config, frozenset(RULES), today)
    except FleetError as error:
        raise FleetError(locate(error.problems)) from None


def repository_files(root: Path | None) -> Mapping[str, str]:
    """Return the files that rules read: path below `root` -> text. Without a root, as in a wheel, there are none."""
    if root is None:
        return {}
    paths = sorted(path for pattern in _FILES for path in root.glob(pattern) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in paths}
