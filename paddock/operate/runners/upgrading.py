"""Upgrade of Actions Runner Controller: drained, controller first, then the scale sets, each phase checked.

ARC's controller deletes scale sets of another minor, with the runners in them; therefore nothing runs while it changes.
Every phase looks at the cluster first, so that a second run continues where the first stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paddock.errors import program
from paddock.fleet import Fleet
from paddock.operate.phases import Course, Done, PhaseFailed, Refused, Stack, Watch
from paddock.operate.runners import arc, draining
from paddock.operate.runners.arc import COMMAND, UpgradePlan
from paddock.operate.runners.draining import Scope, Writer
from paddock.operate.runners.emptying import Emptying, done_of
from paddock.operate.snapshot.model import Snapshot
from paddock.pulumi_cli.stack import Notify, Resource, title

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

    def plan(self) -> UpgradePlan:
        """Return what has to be done. Raises Refused and Unavailable."""
        return arc.plan(self.read(), self.stack, self.target)

    def also(self) -> tuple[str, ...]:
        """Return what `pulumi up` changes besides ARC. Raises PulumiError, before anything is drained."""
        resources = self.pulumi.resources()
        own = {*self._targets(resources), *(item.urn for item in arc.set_releases(resources).values())}
        touched = self.pulumi.preview(self.notify).steps
        return tuple(dict.fromkeys(f"{step.operation} {title(step.urn)}" for step in touched if step.urn not in own))

    def run(self, plan: UpgradePlan) -> Course:
        """Do what is planned, phase by phase."""
        course = Course(self.notify)
        changes = plan.new_controller or bool(plan.behind)
        if changes:
            emptying = Emptying(self.read, Scope(list(self.fleet.runners)), self.watch, self.patience)
            fix = "wait for the jobs, or cancel them at GitHub; --timeout waits longer"
            course.run("drain", lambda: emptying.drain(self.writer, COMMAND))
            course.run("runners end", lambda: emptying.end(self.notify, fix))
        if plan.new_controller:
            course.run("CRDs and controller", self._controller)
            course.run("controller available", lambda: self._available(plan))
        if changes:
            course.run("scale sets", self._sets)
        course.run("scale sets served", self._served)
        course.run("resume", self._resume)
        return course

    def _controller(self) -> Done:
        run = self.pulumi.up(self.notify, targets=self._targets(self.pulumi.resources()))
        return Done(f"Pulumi changed {len(run.steps)} resources", tuple(map(title, run.touched("create", "update"))))

    def _available(self, plan: UpgradePlan) -> Done:
        def pending() -> str:
            items = arc.controllers(self.read(), self.stack)
            return "; ".join(late for item in items if (late := arc.not_available(item, self.target)))

        try:
            if late := self.watch.until(pending, CONTROLLER_SECONDS, self.notify):
                where = plan.controllers[0]["metadata"]["namespace"]
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
        again = [
            matches.urn
            for key in absent
            if (matches := releases.get(snapshot.fleet.runners[key].scale_set))
            and matches.inputs.get("version") == self.target
        ]
        run = self.pulumi.up(self.notify, replace=again)
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
        return done_of(list(draining.resume(snapshot, Scope(keys), self.writer)), "the scale sets take jobs", "")

    def _targets(self, resources: tuple[Resource, ...]) -> list[str]:
        matches = arc.targets(resources)
        if not matches:
            raise PhaseFailed(
                f"the state of stack {self.stack} has no controller of ARC",
                f"pulumi stack --stack {self.stack}: is it the stack of the fleet?",
            )
        return matches
