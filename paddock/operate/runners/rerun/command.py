"""`runners.rerun`: jobs whose node was taken back are run again, once or until Ctrl-C."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from paddock.console.command import command
from paddock.console.output import BadFlag, say
from paddock.console.parameters import parameter
from paddock.console.progress import progress
from paddock.console.project import root
from paddock.console.question import agreed, can_ask
from paddock.duration import Seconds
from paddock.errors import PaddockError, program
from paddock.fleet import Fleet, load
from paddock.labels import POOL
from paddock.operate.connect import connect
from paddock.operate.parameters import Declined, OfChange, OfClusterAndGitHub, declined
from paddock.operate.runners.rerun.placement import is_runner_of
from paddock.operate.runners.rerun.report import JobsRerun, Unread
from paddock.operate.runners.rerun.session import PARTS, Session
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources import aws_instances, interruptions
from paddock.operate.sources.aws_instances import Instances
from paddock.operate.sources.github_actions import Actions
from paddock.operate.sources.interruptions import Interruption
from paddock.operate.sources.unavailable import Unavailable

POLL = 20.0
"""Seconds between two readings of the cluster by `--watch`."""
_LEAST_PERIOD, _PERIOD_EACH = 60.0, 6.0
"""Seconds between two passes over GitHub: at least, and for each repository, so that an hour's requests suffice."""
_CREDENTIALS = 600.0
"""Seconds after which the watch logs in again: EKS takes a token for 15 minutes, GitHub for an hour."""
_MOST_REPOSITORIES = 100
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_LONGEST = 7 * 86400
_UNCHANGED = "Nothing was run again."


@dataclass(frozen=True, kw_only=True)
class Rerun(OfClusterAndGitHub, OfChange):
    """Parameters of `runners.rerun`."""

    github_key: Path | None = parameter(None, "the file with the App's private key, or a token")
    repository: tuple[str, ...] = parameter(
        (),
        "only this one, owner/name; may be given again. By default those of the App's installation",
        repeats=True,
    )
    since: float = parameter(3600.0, "look at jobs that ended within this time, at most 7d", unit=Seconds, gt=0)
    watch: bool = parameter(False, "look until Ctrl-C, which also sees the instances of nodes before they are gone")
    dry_run: bool = parameter(False, "show what would be run again, and run nothing")


@command()
def rerun(parameters: Rerun) -> JobsRerun | Declined | int:
    """Run jobs again whose node was taken back. Raises FleetError, BadFlag, NoGitHub and OutputError."""
    _check(parameters)
    stack = load(root(), parameters.stack)
    named = _named(stack.fleet, parameters.repository)
    if parameters.github_key is None:
        raise BadFlag(
            "--github-key is missing\n    expected: the file with the App's private key, or a token"
            "\n    fix: --github-key FILE; docs/day-two.md says what it may do"
        )
    passes = _Passes(stack.fleet, parameters, named)
    change, json = not parameters.dry_run, parameters.json
    if parameters.watch:
        question = "Run every job again whose node is taken back, until Ctrl-C?"
        if change and not agreed(question, json, yes=parameters.yes):
            return declined(_UNCHANGED)
        return passes.watch(change=change)
    with progress(quiet=True) as shown:
        passes.session.progress = shown.now
        report = passes.once(change=parameters.yes)
    planned = [job for job in report.jobs if job.state == "planned"]
    if parameters.yes or parameters.dry_run or not planned or report.interrupted:
        return report
    say(json, *report.text())
    names = ", ".join(f"{job.name} of {job.repository}" for job in planned)
    return passes.once(change=True) if agreed(f"Run again: {names}?", json) else declined(_UNCHANGED)


class NoGitHub(PaddockError):
    """GitHub gives no access, so no job can be read."""


class _Passes:
    """Passes over a fleet's jobs: readers, and what they are asked for."""

    def __init__(self, fleet: Fleet, parameters: Rerun, named: Sequence[str]) -> None:
        self.fleet, self.parameters, self.named = fleet, parameters, named
        self.sources, github = self._connect()
        self.session = Session(fleet, github, self._instances)

    def _connect(self) -> tuple[Sources, Actions]:
        """Return the readers. Raises BadFlag and NoGitHub."""
        sources = connect(self.fleet, self.parameters)
        if sources.github is None:
            reason = sources.reasons["github"]
            fix = reason.fix or f"{program()} init.github --key FILE checks an App's key"
            raise NoGitHub(f"GitHub: {reason}\n    fix: {fix}")
        self.connected = time.monotonic()
        return sources, Actions(sources.github)

    def once(self, *, change: bool) -> JobsRerun:
        """Return the report of one pass."""
        return self._report(self._read(aws=True), change=change)

    def _read(self, *, aws: bool) -> Snapshot:
        """Read the cluster, and the node groups where the pass may need them; the pass itself reads GitHub."""
        sources = replace(self.sources, github=None, aws=self.sources.aws if aws else None)
        return read(self.fleet, sources, parts=PARTS)

    def watch(self, *, change: bool) -> int:
        """Repeat until Ctrl-C; print what has changed since the pass before."""
        shown: dict[int, tuple[str, str]] = {}
        due = 0.0
        try:
            while True:
                self._renew()
                is_due = time.monotonic() >= due
                snapshot = self._read(aws=is_due)
                self.session.memory.learn(snapshot)
                if is_due:
                    report = self._report(snapshot, change=change)
                    due = time.monotonic() + max(min(_LEAST_PERIOD, POLL * 3), _PERIOD_EACH * len(report.repositories))
                    fresh = [line for line in report.jobs if shown.get(line.job) != (line.state, line.message)]
                    shown |= {line.job: (line.state, line.message) for line in fresh}
                    self.parameters.json.write(report.document())
                    say(self.parameters.json, *report.news(fresh))
                    if report.interrupted:
                        return 0
                time.sleep(POLL)
        except KeyboardInterrupt:
            return 0

    def _renew(self) -> None:
        """Log in again once in a while; if that fails, keep the old login, and try again at the next pass."""
        if time.monotonic() - self.connected > _CREDENTIALS:
            before = self.connected
            with suppress(NoGitHub):
                sources, actions = self._connect()
                if sources.kubernetes is None:
                    self.connected = before
                else:
                    self.sources, self.session.actions = sources, actions

    def _report(self, snapshot: Snapshot, *, change: bool) -> JobsRerun:
        at = datetime.now(UTC)
        since = at - timedelta(seconds=self.parameters.since)
        repositories, missed = _repositories(self.fleet, self.session.actions, snapshot, self.named)
        lines = self.session.run(snapshot, repositories, since, change=change)
        if change:
            self._keep()
        cluster = self.sources.kubernetes.cluster if self.sources.kubernetes else None
        return JobsRerun(
            stack=self.parameters.stack,
            fleet=self.fleet.name,
            context=cluster.context if cluster else None,
            at=at,
            since=since,
            repositories=tuple(repositories),
            jobs=tuple(lines),
            unread=(*missed, *_parts(snapshot), *self.session.unread),
            interrupted=self.session.interrupted,
        )

    def _instances(self, snapshot: Snapshot, since: datetime) -> Instances:
        if self.sources.aws is None:
            return Instances(error=Unavailable("the nodes are not this fleet's"))
        if not snapshot.node_groups.known:
            reading = snapshot.node_groups
            return Instances(error=Unavailable(f"node groups: {reading.reason}", reading.fix, reading.permission))
        groups = {
            str(group["name"]): str(item["labels"][POOL])
            for item in snapshot.node_groups
            for group in (item.get("resources") or {}).get("autoScalingGroups") or []
        }
        return aws_instances.read(self.sources.aws, self.fleet, groups, since)

    def _keep(self) -> None:
        """Keep the jobs that were lost, for `inv cost`. A record that cannot be kept fails nothing."""
        try:
            interruptions.keep(self.parameters.stack, _interruptions(self.fleet, self.session))
        except (OSError, Unavailable) as error:
            sys.stderr.write(f"the record is not kept: {error}\n")


def _interruptions(fleet: Fleet, session: Session) -> Iterator[Interruption]:
    for job, _ in session.lost:
        spec = next(runner for runner in fleet.runners.values() if is_runner_of(runner.scale_set, job.runner))
        if job.started and job.ended:
            yield Interruption(
                job.id,
                job.repository,
                job.workflow,
                spec.scale_set,
                spec.gpus,
                job.started.isoformat(),
                job.ended.isoformat(),
            )


def _parts(snapshot: Snapshot) -> Iterator[Unread]:
    for part in PARTS:
        reading = snapshot.readings()[part]
        if not reading.known:
            yield Unread(part=part, reason=reading.reason, fix=reading.fix, permission=reading.permission)


def _check(parameters: Rerun) -> None:
    """Raise BadFlag for flags that exclude one another, before anything is read."""
    json = parameters.json
    if parameters.since > _LONGEST:
        raise BadFlag(f"--since is {parameters.since:g} s\n    expected: at most 7d\n    fix: leave it out for 1h")
    if parameters.watch and json.replaces_text:
        raise BadFlag("--watch with --json\n    expected: one of them, or --json FILE\n    fix: run --json as often")
    if parameters.dry_run and parameters.yes:
        raise BadFlag("--dry-run with --yes\n    expected: one of them\n    fix: leave one out")
    if not parameters.dry_run and not parameters.yes and not can_ask(json):
        raise BadFlag(
            "nothing was run again: there is no terminal to ask on\n    expected: --yes or --dry-run"
            "\n    fix: add --yes to run jobs again"
        )


def _named(fleet: Fleet, repositories: Sequence[str]) -> list[str]:
    """Return the repositories of a flag. Raises BadFlag."""
    path = urlsplit(fleet.github.url).path.strip("/")
    for name in repositories:
        if not _REPOSITORY.fullmatch(name):
            raise BadFlag(f"--repository {name}\n    expected: owner/name\n    fix: --repository acme/app")
        fits = {
            "repository": name.lower() == path.lower(),
            "organisation": name.lower().startswith(f"{path.lower()}/"),
            "enterprise": True,
        }[fleet.github.scope]
        if not fits:
            expected = path if fleet.github.scope == "repository" else f"{path}/NAME"
            raise BadFlag(
                f"--repository {name}: the fleet's runners are those of {path}"
                f"\n    expected: {expected}\n    fix: leave it out"
            )
    return list(dict.fromkeys(repositories))


def _repositories(
    fleet: Fleet, actions: Actions, snapshot: Snapshot, named: Sequence[str]
) -> tuple[list[str], list[Unread]]:
    """Return the repositories to read, and what is missing of them."""
    if named:
        return list(named), []
    if fleet.github.scope == "repository":
        return [urlsplit(fleet.github.url).path.strip("/")], []
    of_runners = {
        str(status["jobRepositoryName"])
        for runner in snapshot.runners
        if (status := runner.get("status") or {}).get("jobRepositoryName")
    }
    try:
        every = actions.repositories()
    except Unavailable as error:
        reason = f"only those of runners that are there now are read: {error}"
        return sorted(of_runners), [Unread(part="repositories", reason=reason, fix="--repository owner/name")]
    chosen = list(dict.fromkeys([*sorted(of_runners), *every]))
    if len(chosen) > _MOST_REPOSITORIES:
        reason = f"{_MOST_REPOSITORIES} of {len(chosen)} are read"
        return chosen[:_MOST_REPOSITORIES], [Unread(part="repositories", reason=reason, fix="--repository owner/name")]
    return chosen, []
