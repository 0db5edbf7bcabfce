"""Upgrade of Actions Runner Controller: drained, controller first, then the scale sets, each phase checked.

ARC's controller deletes scale sets of another minor, with the runners in them; therefore nothing runs while it changes.
Every phase looks at the cluster first, so that a second run goes on where the one before it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paddock.errors import program
from paddock.fleet import Fleet
from paddock.operate.lifecycle import arc
from paddock.operate.lifecycle.arc import COMMAND, Plan
from paddock.operate.lifecycle.phases import Course, Done, PhaseFailed, Refused, Stack, Watch
from paddock.operate.runners import drain
from paddock.operate.runners.drain import Scope, Writer
from paddock.operate.runners.report import Step
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.sources.pulumi import Notify, Resource, title

CONTROLLER_SECONDS = 600.0
"""Until the controller must be available; its Helm release gives up after as long."""
SETS_SECONDS = 600.0
"""Until every scale set must be served."""
SETTLE_SECONDS = 20.0
"""In which a controller of another minor finds the scale sets that it deletes."""


@dataclass
class Upgrading:
    """One upgrade. `read` returns the cluster as it is now."""

    fleet: Fleet
    stack: str
    target: str
    read: Callable[[], Snapshot]
    writer: Writer
    pulumi: Stack
    notify: Notify
    patience: float
    """Seconds for the runners to end."""
    watch: Watch = field(default_factory=Watch)

    def plan(self) -> Plan:
        """Return what has to be done. Raises Refused and Unavailable."""
        return arc.plan(self.read(), self.stack, self.target)

    def also(self) -> tuple[str, ...]:
        """Return what `pulumi up` changes beside ARC. Raises PulumiError, before anything is drained."""
        resources = self.pulumi.resources()
        own = {*self._targets(resources), *(item.urn for item in arc.set_releases(resources).values())}
        touched = self.pulumi.preview(self.notify).steps
        return tuple(dict.fromkeys(f"{step.operation} {title(step.urn)}" for step in touched if step.urn not in own))

    def run(self, plan: Plan) -> Course:
        """Do what is planned, phase by phase."""
        course = Course(self.notify)
        changes = plan.new_controller or bool(plan.behind)
        if changes:
            course.run("drain", self._drain)
            course.run("runners end", self._runners_end)
        if plan.new_controller:
            course.run("CRDs and controller", self._controller)
            course.run("controller available", lambda: self._available(plan))
        if changes:
            course.run("scale sets", self._sets)
        course.run("scale sets served", self._served)
        course.run("resume", self._resume)
        return course

    def _drain(self) -> Done:
        snapshot = self.read()
        if not any(arc.runner_set(snapshot, key) for key in self.fleet.runners):
            return Done("there is no scale set", changed=False)
        steps = list(drain.drain(snapshot, self._scope, self.writer, by=COMMAND))
        return _of(steps, "no scale set takes a new job", "every scale set is drained already")

    @property
    def _scope(self) -> Scope:
        return Scope(list(self.fleet.runners))

    def _runners_end(self) -> Done:
        def pending() -> str:
            left = drain.left(self.read(), self._scope)
            at_work = sum(item.job is not None for item in left)
            return f"{len(left)} runners are left, {at_work} with a job" if left else ""

        first = pending()
        if first and (late := self.watch.until(pending, self.patience, self.notify)):
            left = tuple(f"{item.runner}: {item.job or 'no job'}" for item in drain.left(self.read(), self._scope))
            fix = "wait for the jobs, or cancel them at GitHub; --timeout waits longer"
            raise PhaseFailed(f"{late} after {self.patience:.0f} s", fix, left)
        return Done("no runner is left" if first else "no runner was there", changed=bool(first))

    def _controller(self) -> Done:
        run = self.pulumi.up(self.notify, targets=self._targets(self.pulumi.resources()))
        return Done(f"Pulumi changed {len(run.steps)} resources", tuple(map(title, run.touched("create", "update"))))

    def _available(self, plan: Plan) -> Done:
        def pending() -> str:
            return arc.not_available(arc.controller(self.read(), self.stack), self.target)

        try:
            if late := self.watch.until(pending, CONTROLLER_SECONDS, self.notify):
                where = plan.controller["metadata"]["namespace"]
                fix = f"kubectl -n {where} get pods; kubectl -n {where} get events"
                raise PhaseFailed(f"{late}, after {CONTROLLER_SECONDS:.0f} s", fix)
        except Refused as error:
            raise PhaseFailed(str(error).splitlines()[0], f"pulumi up --stack {self.stack}") from None
        if arc.other_minor(plan.installed, self.target):
            self._settle()
        return Done(f"it runs {self.target}")

    def _settle(self) -> None:
        """Wait for scale sets that the new controller deletes: Helm would write into one that is going."""
        self.watch.sleep(SETTLE_SECONDS)

        def pending() -> str:
            going = arc.leaving(self.read(), self.target)
            return f"{', '.join(going)}: being deleted by the controller, as it is of another minor" if going else ""

        if late := self.watch.until(pending, SETS_SECONDS, self.notify):
            raise PhaseFailed(f"{late}, still after {SETS_SECONDS:.0f} s", f"{program()} why")

    def _sets(self) -> Done:
        snapshot, releases = self.read(), arc.set_releases(self.pulumi.resources())
        absent = [key for key in snapshot.fleet.runners if arc.runner_set(snapshot, key) is None]
        # Helm makes what is absent only when the release changes, and a release that is at its version does not.
        anew = [
            matches.urn
            for key in absent
            if (matches := releases.get(snapshot.fleet.runners[key].scale_set))
            and matches.inputs.get("version") == self.target
        ]
        run = self.pulumi.up(self.notify, replace=anew)
        return Done(f"Pulumi changed {len(run.steps)} resources", changed=bool(run.steps))

    def _served(self) -> Done:
        def pending() -> str:
            snapshot = self.read()
            return "; ".join(
                reason for key in self.fleet.runners if (reason := arc.unserved(snapshot, key, self.target))
            )

        if late := self.watch.until(pending, SETS_SECONDS, self.notify):
            fix = f"{program()} why --stack {self.stack}; {program()} runners.recycle --stack {self.stack}"
            raise PhaseFailed(f"{late}, after {SETS_SECONDS:.0f} s", fix)
        return Done(f"every scale set is Running at {self.target}, with its listener", changed=False)

    def _resume(self) -> Done:
        snapshot = self.read()
        if not (keys := arc.ours(snapshot)):
            return Done("nothing was drained by the upgrade", changed=False)
        return _of(list(drain.resume(snapshot, Scope(keys), self.writer)), "the scale sets take jobs", "")

    def _targets(self, resources: tuple[Resource, ...]) -> list[str]:
        matches = arc.targets(resources)
        if not matches:
            raise PhaseFailed(
                f"the state of stack {self.stack} has no controller of ARC",
                f"pulumi stack --stack {self.stack}: is it the stack of the fleet?",
            )
        return matches


def _of(steps: list[Step], done: str, unchanged: str) -> Done:
    details = tuple(f"{step.object}: {step.message}" for step in steps)
    if failed := [step for step in steps if step.state == "failed"]:
        raise PhaseFailed(failed[0].message, failed[0].fix, details)
    changed = any(step.state == "done" for step in steps)
    return Done(done if changed or not unchanged else unchanged, details, changed)
