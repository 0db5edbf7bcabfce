"""The phases with which an upgrade and a removal begin: scale sets are drained, and their runners end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paddock.operate.phases import Done, PhaseFailed, Watch
from paddock.operate.runners import arc, draining
from paddock.operate.runners.draining import Scope, Writer
from paddock.operate.runners.report import Change
from paddock.operate.snapshot.model import Snapshot
from paddock.pulumi_cli.stack import Notify


@dataclass(frozen=True, slots=True)
class Emptying:
    """Runners of one stack. `read` returns the cluster as it is now, `patience` is in seconds."""

    read: Callable[[], Snapshot]
    scope: Scope
    watch: Watch
    patience: float

    def drain(self, writer: Writer, by: str) -> Done:
        """Let the scale sets take no new job, on behalf of a command. Raises PhaseFailed."""
        snapshot = self.read()
        if not any(arc.runner_set(snapshot, key) for key in self.scope.runners):
            return Done("the cluster has no scale set", changed=False)
        changes = list(draining.drain(snapshot, self.scope, writer, by=by))
        return done_of(changes, "no scale set takes a new job", "every scale set is drained already")

    def end(self, notify: Notify, fix: str, *, with_jobs: bool = True) -> Done:
        """Wait for the runners to end; without `with_jobs` for those that have no job. Raises PhaseFailed."""

        def pending() -> str:
            left = draining.left(self.read(), self.scope)
            awaited = [item for item in left if with_jobs or item.job is None]
            at_work = sum(item.job is not None for item in left)
            return f"{len(left)} runners are left, {at_work} with a job" if awaited else ""

        first = pending()
        if first and (late := self.watch.until(pending, self.patience, notify)):
            left = tuple(f"{one.runner}: {one.job or 'no job'}" for one in draining.left(self.read(), self.scope))
            raise PhaseFailed(f"{late} after {self.patience:.0f} s", fix, left)
        return Done("no runner is left" if first else "no runner was there", changed=bool(first))


def done_of(changes: Sequence[Change], done: str, unchanged: str) -> Done:
    """Return changes as the result of a phase. Raises PhaseFailed."""
    details = tuple(f"{one.object}: {one.message}" for one in changes)
    if failed := [one for one in changes if one.state == "failed"]:
        raise PhaseFailed(failed[0].message, failed[0].fix, details)
    changed = any(one.state == "done" for one in changes)
    return Done(done if changed or not unchanged else unchanged, details, changed)
