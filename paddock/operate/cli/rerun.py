"""The work of `inv runners.rerun`, without Invoke: read, ask, run jobs again, once or until Ctrl-C."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from paddock.errors import PaddockError, printable, program
from paddock.fleet import Fleet, load, nodes
from paddock.operate.cli.connect import Access, connect
from paddock.operate.cli.progress import progress
from paddock.operate.rerun.placement import is_runner_of
from paddock.operate.rerun.report import Line, Report, Unread
from paddock.operate.rerun.session import PARTS, Session
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources import aws_instances, interruptions
from paddock.operate.sources.aws_instances import Instances
from paddock.operate.sources.github_actions import Actions
from paddock.operate.sources.interruptions import Interruption
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors

INTERRUPTED = 130
POLL = 20.0
"""Seconds between two readings of the cluster by `--watch`."""
_LEAST_PERIOD, _PERIOD_EACH = 60.0, 6.0
"""Seconds between two passes over GitHub: at least, and for each repository, so that an hour's requests suffice."""
_CREDENTIALS = 600.0
"""Seconds after which the watch logs in anew: EKS takes a token for 15 minutes, GitHub for an hour."""
_MOST_REPOSITORIES = 100
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_LONGEST = 7 * 86400


@json_errors
def run(
    root: Path,
    stack: str,
    access: Access,
    *,
    repositories: Sequence[str] = (),
    since: float = 3600.0,
    watch: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: JsonOutput = NO_JSON,
    poll: float = POLL,
) -> int:
    """Run jobs again whose node was taken back.

    Return 1 where a part was not read or GitHub refused, 130 after Ctrl-C, else 0. `since` is in seconds. With `watch`
    it repeats until Ctrl-C, and returns 0. Raises FleetError, BadFlag, NoGitHub and OutputError.
    """
    _check(since, watch, dry_run, yes, json)
    loaded = load(root, stack)
    fleet = loaded.fleet
    named = _named(fleet, repositories)
    if access.github_key is None:
        raise BadFlag(
            "--github-key is missing\n    expected: the file with the App's private key, or a token"
            "\n    fix: --github-key FILE; docs/day-two.md says what it may do"
        )
    command = _Command(loaded.name, fleet, access, named, since, json)
    if watch:
        if not dry_run and not yes and not _agreed("every job whose node is taken back, until Ctrl-C"):
            return _unchanged()
        return command.watch(change=not dry_run, poll=poll)
    with progress(plain_lines=False) as command.session.progress:
        report = command.once(change=yes)
    planned = [line for line in report.jobs if line.state == "planned"]
    if yes or dry_run or not planned or report.interrupted:
        return command.print(report)
    show(report)
    if not _agreed(", ".join(f"{line.name} of {line.repository}" for line in planned)):
        return _unchanged()
    return command.print(command.once(change=True))


class NoGitHub(PaddockError):
    """GitHub gives no access, so no job can be read."""


class _Command:
    """One run of the command: readers, and what they are asked for."""

    def __init__(
        self, stack: str, fleet: Fleet, access: Access, named: Sequence[str], since: float, json: JsonOutput
    ) -> None:
        self.stack, self.fleet, self.access = stack, fleet, access
        self.named, self.since, self.json = named, since, json
        self.sources, github = self._connect()
        self.session = Session(fleet, github, self._instances)

    def _connect(self) -> tuple[Sources, Actions]:
        """Return the readers. Raises BadFlag and NoGitHub."""
        sources = connect(self.fleet, self.access)
        if sources.github is None:
            reason = sources.reasons["github"]
            fix = reason.fix or f"{program()} github.app --key FILE looks at an App's key"
            raise NoGitHub(f"GitHub: {reason}\n    fix: {fix}")
        self.connected = time.monotonic()
        return sources, Actions(sources.github)

    def once(self, *, change: bool) -> Report:
        """Return the report of one pass."""
        return self._report(self._read(aws=True), change=change)

    def _read(self, *, aws: bool) -> Snapshot:
        """Read the cluster, and the node groups where the pass may need them; the pass itself reads GitHub."""
        sources = replace(self.sources, github=None, aws=self.sources.aws if aws else None)
        return read(self.fleet, sources, parts=PARTS)

    def watch(self, *, change: bool, poll: float) -> int:
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
                    due = time.monotonic() + max(min(_LEAST_PERIOD, poll * 3), _PERIOD_EACH * len(report.repositories))
                    fresh = [line for line in report.jobs if shown.get(line.job) != (line.state, line.message)]
                    shown |= {line.job: (line.state, line.message) for line in fresh}
                    self.json.write(report.model_dump(mode="json", by_alias=True))
                    show(report.model_copy(update={"jobs": tuple(fresh)}), again=True)
                    if report.interrupted:
                        return 0
                time.sleep(poll)
        except KeyboardInterrupt:
            return 0

    def _renew(self) -> None:
        """Log in anew once in a while; where that fails, go on with what there is, and try again at the next pass."""
        if time.monotonic() - self.connected > _CREDENTIALS:
            before = self.connected
            with suppress(NoGitHub):
                sources, actions = self._connect()
                if sources.kubernetes is None:
                    self.connected = before
                else:
                    self.sources, self.session.actions = sources, actions

    def print(self, report: Report) -> int:
        """Print a report, and return the exit code."""
        self.json.write(report.model_dump(mode="json", by_alias=True))
        if not self.json.replaces_text:
            show(report)
        return INTERRUPTED if report.interrupted else int(report.failed)

    def _report(self, snapshot: Snapshot, *, change: bool) -> Report:
        at = datetime.now(UTC)
        since = at - timedelta(seconds=self.since)
        repositories, missed = _repositories(self.fleet, self.session.actions, snapshot, self.named)
        lines = self.session.run(snapshot, repositories, since, change=change)
        if change:
            self._keep()
        cluster = self.sources.kubernetes.cluster if self.sources.kubernetes else None
        return Report(
            stack=self.stack,
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
            str(group["name"]): str(item["labels"][nodes.POOL])
            for item in snapshot.node_groups
            for group in (item.get("resources") or {}).get("autoScalingGroups") or []
        }
        return aws_instances.read(self.sources.aws, self.fleet, groups, since)

    def _keep(self) -> None:
        """Keep the jobs that were lost, for `inv cost`. A record that cannot be kept fails nothing."""
        try:
            interruptions.keep(self.stack, _interruptions(self.fleet, self.session))
        except (OSError, Unavailable) as error:
            console(sys.stderr).print(f"the record is not kept: {error}", markup=False)


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


def _check(since: float, watch: bool, dry_run: bool, yes: bool, json: JsonOutput) -> None:
    """Raise BadFlag for flags that make no sense."""
    if not 0 < since <= _LONGEST:
        raise BadFlag(f"--since {since:g}s\n    expected: more than nothing, at most 7d\n    fix: leave it out for 1h")
    if watch and json.replaces_text:
        raise BadFlag("--watch with --json\n    expected: one of them, or --json FILE\n    fix: run --json as often")
    if dry_run and yes:
        raise BadFlag("--dry-run with --yes\n    expected: one of them\n    fix: leave one out")
    if not dry_run and not yes and (json.replaces_text or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise BadFlag(
            "nothing was changed: there is no terminal to ask on\n    fix: add --yes to run jobs again, or --dry-run"
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


def _agreed(what: str) -> bool:
    return input(printable(f"runners.rerun runs again: {what}? [y/N] ")).strip().lower() in ("y", "yes")


def _unchanged() -> int:
    console(sys.stderr).print("Nothing was run again.")
    return 0


def show(report: Report, *, again: bool = False) -> None:
    """Print a line a job, then what could not be read. `again`: only what is new."""
    out = console()

    def line(text: str = "") -> None:
        out.print(printable(text), soft_wrap=True, markup=False)

    if not again:
        where = f"context {report.context}" if report.context else "cluster unknown"
        line(f"runners.rerun of {report.stack}  {report.fleet}  {where}  jobs since {report.since:%Y-%m-%d %H:%M} UTC")
    for job in report.jobs:
        for text in _lines(job):
            line(text)
    if not report.jobs and not again:
        line(f"  no job of the fleet's runners has failed in {', '.join(report.repositories) or 'any repository'}")
    parts: dict[tuple[str, str], list[str]] = {}
    for unread in () if again and not report.jobs else report.unread:
        parts.setdefault((unread.reason, unread.fix), []).append(unread.part)
    for (reason, fix), names in parts.items():
        line(f"  {', '.join(names)} not known: {reason}")
        if fix:
            line(f"             fix: {fix}")
    if report.interrupted and not again:
        line("  interrupted; what stands above is done; run it again to see the rest")


def _lines(job: Line) -> Iterator[str]:
    yield f"  {job.state:9}  {job.repository}, run {job.run}, attempt {job.attempt}, {job.name}: {job.message}"
    if job.fix:
        yield f"             fix: {job.fix}"
