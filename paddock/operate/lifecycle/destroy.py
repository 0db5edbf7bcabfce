"""Removal of a fleet: runners first, while controller and credential still work, volumes while their driver does.

Every phase looks first, so that a second run goes on where the one before it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paddock.errors import PaddockError, program
from paddock.fleet import Fleet
from paddock.operate.lifecycle import arc, holdings, leftovers
from paddock.operate.lifecycle.phases import Course, Done, PhaseFailed, Refused, Stack, Watch
from paddock.operate.lifecycle.report import Item
from paddock.operate.runners import drain
from paddock.operate.runners.drain import Scope, Writer, known
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.kubernetes_changes import Changed
from paddock.operate.sources.pulumi import Notify, Resource
from paddock.operate.sources.unavailable import NotFound, Unavailable

COMMAND = "fleet.destroy"
PARTS = ("runner_sets", "listeners", "runner_groups", "runners", "nodes")
GONE_SECONDS = 900.0
"""Until ARC must have removed its finalizers, and until volumes must be gone. GitHub notices within minutes that a
runner was lost."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Readers and writer of the cluster, each of what is there now."""

    read: Callable[[], Snapshot]
    objects: Callable[[str, str], Sequence[Object]]
    """Objects by version and kind. Raises Unavailable."""
    writer: Writer


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of a removal: resources that go, and things that stay."""

    resources: tuple[Resource, ...]
    deleted: frozenset[str]
    """URNs that Pulumi would delete."""
    exclude: tuple[str, ...]
    """Repositories with images, which ECR would not delete."""
    stays: tuple[Item, ...]
    jobs: tuple[str, ...]
    in_cluster: bool
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """True where the state has nothing that goes."""
        return not self.deleted


@dataclass
class Destroying:
    """One removal. Without a cluster `unreachable` says why, and nothing in it can be removed in order."""

    fleet: Fleet
    stack: str
    pulumi: Stack
    cluster: Cluster | None
    aws: AwsReader | None
    notify: Notify
    patience: float
    """Seconds for the runners to end."""
    unreachable: PaddockError | None = None
    with_protected: bool = False
    with_running_jobs: bool = False
    built_on: Mapping[str, Callable[[], Sequence[Resource]]] = field(default_factory=dict)
    """Stacks whose parts stand on this one's, with what they hold."""
    watch: Watch = field(default_factory=Watch)

    def plan(self) -> Plan:
        """Return what goes and what stays. Raises Refused, PulumiError and Unavailable; changes nothing."""
        resources = self.pulumi.resources()
        self._refuse_others()
        self._refuse_protection(resources)
        in_cluster = holdings.in_kubernetes(resources)
        if in_cluster and self.cluster is None:
            if self.unreachable and self.unreachable.exit_code != 1:  # a flag that is to be mended
                raise self.unreachable
            reason = str(self.unreachable).splitlines()[0]
            raise Refused(
                f"the stack has objects in a cluster: {reason}"
                "\n    expected: the cluster, so that runners sign off at GitHub and finalizers are removed"
                "\n    fix: kubectl get nodes; where it is gone for good: PULUMI_K8S_DELETE_UNREACHABLE=true pulumi"
                f" destroy --stack {self.stack}"
            )
        jobs = self._jobs() if in_cluster else ()
        images = self._images(resources) if self.with_protected else {}
        exclude = tuple(urn for urn, count in images.items() if isinstance(count, int) and count)
        deleted = frozenset(
            self.pulumi.preview_destroy(exclude=list(exclude), protected=self.with_protected).touched(
                "delete", "discard"
            )
            if resources
            else ()
        )
        claims = self._claims(resources) if in_cluster else []
        volumes = self._volumes() if claims else []
        return Plan(
            resources,
            deleted,
            exclude,
            holdings.stays(self.fleet, resources, deleted, images, claims, volumes),
            jobs,
            in_cluster,
        )

    def run(self, plan: Plan) -> Course:
        """Do what is planned, phase by phase."""
        course = Course(self.notify)
        if plan.in_cluster and self.cluster:
            course.run("drain", self._drain)
            course.run("runners end", self._runners_end)
            course.run("sign off", self._sign_off)
            course.run("scale sets", self._releases)
            course.run("volumes", self._volumes_go)
        if not plan.nothing:
            course.run("the rest", lambda: self._rest(plan))
        return course

    def left(self) -> tuple[tuple[Item, ...] | None, tuple[str, ...]]:
        """Return what AWS has with the fleet's tag, and what could not be read."""
        if self.aws is None:
            return None, ()
        try:
            tagged = leftovers.tagged(self.aws, self.fleet.name, self.pulumi.resources())
            return (tagged if self._holds_all else tuple(map(leftovers.perhaps_of_another_stack, tagged))), ()
        except Unavailable as error:
            right = f", missing: {error.permission}" if error.permission else ""
            return None, (f"what is left in AWS: {error}{right}",)

    # Before.

    def _refuse_others(self) -> None:
        first = [other for other, held in self.built_on.items() if holdings.things(tuple(held()))]
        if first:
            raise Refused(
                f"stack {', '.join(first)} stands on parts of {self.stack} (paddock:layers)"
                "\n    expected: the runners' stack goes first, then the cluster's, then the images'"
                f"\n    fix: {program()} {COMMAND} --stack {first[0]}"
            )

    def _refuse_protection(self, resources: Sequence[Resource]) -> None:
        cluster = holdings.cluster_in(resources)
        if self.with_protected and cluster and self._deletion_protection(cluster):
            raise Refused(
                f"{cluster.title} has EKS's own deletion protection, and AWS would refuse at the very end"
                "\n    expected: none on a cluster that is to go"
                f"\n    fix: aws eks update-cluster-config --name {cluster.id} --no-deletion-protection"
            )

    def _deletion_protection(self, cluster: Resource) -> bool:
        """Return what EKS says now, or the stack's state where EKS does not answer."""
        if self.aws:
            try:
                return bool(
                    self.aws.read("eks", "describe_cluster", name=cluster.id)["cluster"].get("deletionProtection")
                )
            except NotFound:
                return False
            except Unavailable:
                pass
        return bool(cluster.inputs.get("deletionProtection"))

    def _jobs(self) -> tuple[str, ...]:
        snapshot = self._read()
        if self.fleet.holds("cluster") and (others := holdings.foreign_sets(snapshot)):
            raise Refused(
                f"the cluster has scale sets that are not of stack {self.stack}: {', '.join(others)}"
                "\n    expected: none, since the cluster's nodes go"
                "\n    fix: destroy their stack first, or helm uninstall them"
            )
        jobs = tuple(
            f"{work.runner}: {work.job}" for work in drain.left(snapshot, Scope(list(self.fleet.runners))) if work.job
        )
        if jobs and not self.with_running_jobs:
            raise Refused(
                f"{len(jobs)} jobs run: {', '.join(jobs[:5])}"
                "\n    expected: none, since their runners go"
                f"\n    fix: {program()} runners.drain --stack {self.stack} --wait, or --with-running-jobs ends them"
            )
        return jobs

    def _images(self, resources: Sequence[Resource]) -> dict[str, int | str | None]:
        tagged: dict[str, int | str | None] = {}
        for item in holdings.repositories(resources):
            try:
                tagged[item.urn] = leftovers.images_in(self.aws, item.id) if self.aws else None
            except Unavailable as error:
                tagged[item.urn] = f"{error}{f', missing: {error.permission}' if error.permission else ''}"
        return tagged

    # The phases.

    def _drain(self) -> Done:
        snapshot = self._read()
        if not any(arc.runner_set(snapshot, key) for key in self.fleet.runners):
            return Done("there is no scale set", changed=False)
        steps = list(drain.drain(snapshot, self._scope, self._cluster.writer, by=COMMAND))
        details = tuple(f"{step.object}: {step.message}" for step in steps)
        if failed := [step for step in steps if step.state == "failed"]:
            raise PhaseFailed(failed[0].message, failed[0].fix, details)
        return Done("no scale set takes a new job", details, any(step.state == "done" for step in steps))

    def _runners_end(self) -> Done:
        def pending() -> str:
            left = drain.left(self._read(), self._scope)
            waited = [item for item in left if item.job is None or not self.with_running_jobs]
            at_work = sum(item.job is not None for item in left)
            return f"{len(left)} runners are left, {at_work} with a job" if waited else ""

        first = pending()
        if first and (late := self.watch.until(pending, self.patience, self.notify)):
            left = tuple(f"{item.runner}: {item.job or 'no job'}" for item in drain.left(self._read(), self._scope))
            fix = "wait for the jobs, or cancel them at GitHub; --with-running-jobs ends them, --timeout waits longer"
            raise PhaseFailed(f"{late} after {self.patience:.0f} s", fix, left)
        return Done("no runner is awaited", changed=bool(first))

    def _sign_off(self) -> Done:
        """Delete the scale sets, and wait until ARC has removed all that it made, and its finalizers.

        Not by Helm: it would wait for them as long, and not say for what. ARC removes its finalizers when GitHub has
        forgotten the runners.
        """

        def pending() -> str:
            left = holdings.of_arc(self._read())
            self._delete(item for item in left if item["kind"] == "AutoscalingRunnerSet")
            if self.with_running_jobs:
                self._end_jobs(left)
            return f"{len(left)} objects of ARC are left: {', '.join(map(name, left[:3]))}" if left else ""

        first = pending()
        if first and self.watch.until(pending, GONE_SECONDS, self.notify):
            left = holdings.of_arc(self._read())
            item = left[0]
            where = f"-n {item['metadata'].get('namespace')} " if item["metadata"].get("namespace") else ""
            patch = """--type=merge -p '{"metadata":{"finalizers":null}}'"""
            raise PhaseFailed(
                f"{len(left)} objects of ARC are left after {GONE_SECONDS:.0f} s",
                "kubectl -n arc-systems logs deployment/arc-gha-rs-controller says what GitHub answers; where it never"
                " will, remove runners and scale set in GitHub's settings, and for each: kubectl"
                f" {where}patch {str(item['kind']).lower()} {item['metadata']['name']} {patch}",
                tuple(map(holdings.stuck, left)),
            )
        return Done("no scale set, runner or listener is left", changed=bool(first))

    def _releases(self) -> Done:
        urns = [item.urn for item in arc.set_releases(self.pulumi.resources()).values()]
        if not urns:
            return Done("the state has none", changed=False)
        run = self.pulumi.destroy(self.notify, targets=urns)
        return Done(f"Pulumi deleted {len(run.touched('delete'))} resources")

    def _end_jobs(self, left: Sequence[Object]) -> None:
        """Delete runners with their pods: ARC waits for their jobs, and makes a pod anew of a runner that stays."""
        runners = [item for item in left if item["kind"] == "EphemeralRunner"]
        self._delete(runners)
        names = set(map(name, runners))
        pods = self._cluster.objects("v1", "Pod") if names else ()
        self._delete(pod for pod in pods if name(pod) in names)

    def _delete(self, items: Iterable[Object]) -> None:
        """Delete what is not being deleted yet. What changed since it was read is seen again at the next look."""
        for item in items:
            if not _deleted(item):
                with suppress(Changed, NotFound):
                    self._cluster.writer.delete(item)

    def _volumes_go(self) -> Done:
        resources = self.pulumi.resources()
        claims = self._claims(resources)
        if not claims:
            return Done("there is none", changed=False)
        if users := holdings.workloads(claims, resources):
            self.pulumi.destroy(self.notify, targets=users)
        volumes = {claim["spec"].get("volumeName") for claim in claims if self._goes_with(claim)}

        def pending() -> str:
            there = self._claims(resources)
            self._delete(there)
            left = [f"PersistentVolumeClaim {name(claim)}" for claim in there]
            left += [
                f"volume {item['metadata']['name']}" for item in self._volumes() if item["metadata"]["name"] in volumes
            ]
            return f"{', '.join(left)}: not gone yet" if left else ""

        if late := self.watch.until(pending, GONE_SECONDS, self.notify):
            held = tuple(map(holdings.stuck, self._claims(resources)))
            raise PhaseFailed(f"{late} after {GONE_SECONDS:.0f} s", "kubectl get pods,pvc -A: a pod still has it", held)
        return Done(f"{len(claims)} claims with their volumes", tuple(map(name, claims)))

    def _goes_with(self, claim: Object) -> bool:
        return holdings.policy(claim, self._volumes()) == "Delete"

    def _rest(self, plan: Plan) -> Done:
        run = self.pulumi.destroy(self.notify, exclude=list(plan.exclude), protected=self.with_protected)
        left = [item for item in holdings.things(self.pulumi.resources()) if item.urn in plan.deleted]
        if left:  # Pulumi calls a run a success that was interrupted
            raise PhaseFailed(
                f"{len(left)} resources are left that should be gone",
                "run it again",
                tuple(item.title for item in left[:10]),
            )
        return Done(f"Pulumi deleted {len(run.touched('delete'))} resources", changed=bool(run.steps))

    # What is read.

    @property
    def _holds_all(self) -> bool:
        return self.fleet.holds("images") and self.fleet.holds("cluster") and self.fleet.holds("runners")

    @property
    def _cluster(self) -> Cluster:
        assert self.cluster is not None  # noqa: S101 - phases in a cluster run where there is one
        return self.cluster

    @property
    def _scope(self) -> Scope:
        return Scope(list(self.fleet.runners) if self.fleet.holds("runners") else [])

    def _read(self) -> Snapshot:
        snapshot = self._cluster.read()
        for part in PARTS[:-1]:
            known(getattr(snapshot, part), part.replace("_", " "))
        return snapshot

    def _claims(self, resources: Sequence[Resource]) -> list[Object]:
        return holdings.held_claims(self._cluster.objects("v1", "PersistentVolumeClaim"), resources)

    def _volumes(self) -> list[Object]:
        return list(self._cluster.objects("v1", "PersistentVolume"))


def _deleted(item: Object) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))
