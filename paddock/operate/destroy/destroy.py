"""Removal of a fleet: runners first, while controller and credential still work, volumes while their driver does.

Every phase looks first, so that a second run continues where the first stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paddock.errors import PaddockError, program
from paddock.fleet import ExistingCluster, ExistingNetwork, Fleet, NewCluster
from paddock.fleet.arc import controllers
from paddock.operate.destroy import held, holdings, leftovers
from paddock.operate.destroy.report import Item
from paddock.operate.inventory import made_by_others
from paddock.operate.inventory.made_by_others import Scope as Names
from paddock.operate.phases import Course, Done, PhaseFailed, Refused, Stack, Watch, steps
from paddock.operate.runners import arc, draining
from paddock.operate.runners.draining import Scope, Writer, known
from paddock.operate.runners.emptying import Emptying
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.sources.aws import AwsReader, NoCredentials
from paddock.operate.sources.kubernetes import Changed
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.pulumi_cli.stack import Notify, PulumiError, Resource, Run

COMMAND = "destroy"
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
class RemovalPlan:
    """Work of a removal: resources that go, and things that stay."""

    resources: tuple[Resource, ...]
    deleted: frozenset[str]
    """URNs that Pulumi would delete."""
    exclude: tuple[str, ...]
    """Repositories with images, which ECR would not delete."""
    stays: tuple[Item, ...]
    jobs: tuple[str, ...]
    in_cluster: bool
    issuer: str = ""
    """Of the cluster's tokens: AWS does not say it any more when the cluster is gone."""
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
    """Stacks that are built on this one's parts, with what they hold."""
    namesakes: Sequence[str] = ()
    """Stacks whose fleet has the same name."""
    watch: Watch = field(default_factory=Watch)

    def plan(self) -> RemovalPlan:
        """Return what goes and what stays. Raises Refused, PulumiError and Unavailable; changes nothing."""
        resources, notes = self._state()
        self._refuse_others()
        self._refuse_protection(resources)
        in_cluster = holdings.in_kubernetes(resources)
        if in_cluster and self.cluster is None:
            if self.unreachable and self.unreachable.exit_code != 1:  # a flag to correct
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
        return RemovalPlan(
            resources,
            deleted,
            exclude,
            holdings.stays(self.fleet, resources, deleted, images, claims, volumes),
            jobs,
            in_cluster,
            self._issuer(resources),
            notes,
        )

    def run(self, plan: RemovalPlan) -> Course:
        """Do what is planned, phase by phase."""
        course = Course(self.notify)
        if plan.in_cluster and self.cluster:
            runners = Scope(list(self.fleet.runners) if self.fleet.holds("runners") else [])
            emptying = Emptying(self._read, runners, self.watch, self.patience)
            fix = "wait for the jobs, or cancel them at GitHub; --with-running-jobs ends them, --timeout waits longer"
            writer = self.cluster.writer
            course.run("drain", lambda: emptying.drain(writer, COMMAND))
            course.run("runners end", lambda: emptying.end(self.notify, fix, with_jobs=not self.with_running_jobs))
            course.run("sign off", self._sign_off)
            course.run("scale sets", self._releases)
            course.run("volumes", self._volumes_go)
        if not plan.nothing:
            course.run("the rest", lambda: self._rest(plan))
        return course

    def left(self, plan: RemovalPlan, *, planned: bool = False) -> tuple[tuple[Item, ...] | None, tuple[str, ...]]:
        """Return what AWS has of the fleet by every way that it is known, and what could not be read.

        Where the removal is only `planned`, what is in the state is not in it: it goes, or stays as the plan says.
        """
        if self.aws is None:
            return None, ()
        found = made_by_others.read(self.aws, self._names(plan))
        resources = self._state()[0]
        owners = {
            "cluster": not self.fleet.holds("cluster") or self._adopted or holdings.cluster_in(resources),
            "nodes": not self.fleet.holds("cluster") or holdings.node_groups(resources),
        }
        there = [name for name, there in owners.items() if there]
        left = leftovers.items(
            self.fleet.region, found.things, resources, planned=planned, owners=there, shared=self._perhaps_of_others
        )
        unknown = tuple(
            f"what is left in AWS: {error}{f', missing: {error.permission}' if error.permission else ''}"
            for error in found.unanswered
        )
        return (None if any(isinstance(error, NoCredentials) for error in found.unanswered) else left), unknown

    # Before.

    def _refuse_others(self) -> None:
        first = [other for other, held in self.built_on.items() if holdings.things(tuple(held()))]
        if first:
            raise Refused(
                f"stack {', '.join(first)} is built on parts of {self.stack} (paddock:layers)"
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
        made_here = self.fleet.holds("cluster") and isinstance(self.fleet.cluster, NewCluster)
        if made_here and (others := holdings.foreign_sets(snapshot)):
            raise Refused(
                f"the cluster has scale sets that are not of stack {self.stack}: {', '.join(others)}"
                "\n    expected: none, since the cluster's nodes go"
                "\n    fix: destroy their stack first, or helm uninstall them"
            )
        jobs = tuple(
            f"{one.runner}: {one.job}" for one in draining.left(snapshot, Scope(list(self.fleet.runners))) if one.job
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
            logs = " and ".join(dict.fromkeys(one.log for one in controllers(self.fleet).values()))
            patch = f"""{name(item)} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
            raise PhaseFailed(
                f"{len(left)} objects of ARC are left after {GONE_SECONDS:.0f} s",
                f"{logs} says what GitHub answers; where it never will, remove runners and scale set in GitHub's"
                f" settings, and for each: kubectl {where}patch {str(item['kind']).lower()} {patch}",
                tuple(map(holdings.stuck, left)),
            )
        return Done("no scale set, runner or listener is left", changed=bool(first))

    def _releases(self) -> Done:
        urns = [item.urn for item in arc.set_releases(self.pulumi.resources()).values()]
        if not urns:
            return Done("the state has none", changed=False)
        run = self._destroy(targets=urns)
        return Done(f"Pulumi deleted {len(run.touched('delete'))} resources")

    def _end_jobs(self, left: Sequence[Object]) -> None:
        """Delete runners with their pods: ARC waits for their jobs, and makes another pod for a runner that stays."""
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
            return Done("the stack has no claims", changed=False)
        if users := holdings.workloads(claims, resources):
            self._destroy(targets=users)
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

    def _rest(self, plan: RemovalPlan) -> Done:
        run = self._destroy(exclude=plan.exclude, protected=self.with_protected)
        left = [item for item in holdings.things(self.pulumi.resources()) if item.urn in plan.deleted]
        if left:  # Pulumi calls a run a success that was interrupted
            raise PhaseFailed(
                f"{len(left)} resources are left that should be gone",
                "run it again",
                tuple(item.title for item in left[:10]),
            )
        return Done(f"Pulumi deleted {len(run.touched('delete'))} resources", changed=bool(run.steps))

    # What is read.

    def _destroy(self, *, targets: Sequence[str] = (), exclude: Sequence[str] = (), protected: bool = False) -> Run:
        """Let Pulumi delete. Raises PhaseFailed, which names what holds a thing that AWS would not delete."""
        try:
            return self.pulumi.destroy(self.notify, targets=list(targets), exclude=list(exclude), protected=protected)
        except PulumiError as error:
            if self.aws is None:
                raise
            resources: tuple[Resource, ...] = ()
            with suppress(PulumiError):  # what it says of a state that it cannot read hides what failed
                resources = self._state()[0]
            lines, fix = held.explained(error, resources, self.aws, self._adopted_network)
            raise PhaseFailed(str(error), fix or error.fix, (*steps(error.run), *lines)) from None

    def _state(self) -> tuple[tuple[Resource, ...], tuple[str, ...]]:
        """Return what the stack's state has, and why that may not be all. Raises PulumiError."""
        try:
            return self.pulumi.resources(), ()
        except PulumiError as error:
            if "no stack named" not in str(error):
                raise
            return (), (
                f"Pulumi's backend has no stack {self.stack}: what it may have made is looked for in AWS alone",
            )

    def _names(self, plan: RemovalPlan) -> Names:
        """Return the names by which the fleet's things are known, of the parts that this stack holds."""
        fleet, own = self.fleet, self.fleet.holds("cluster")
        network, cluster = fleet.network, fleet.cluster
        adopted = network.existing.subnets if isinstance(network, ExistingNetwork) and own else ()
        return Names(
            fleet.name,
            "" if not own else cluster.existing if isinstance(cluster, ExistingCluster) else fleet.name,
            vpcs=tuple(item.id for item in plan.resources if item.type == holdings.VPC and item.id),
            own_network=own and not adopted,
            subnets=adopted,
            issuer=plan.issuer,
            images=fleet.holds("images"),
            adopted="the cluster is adopted" if self._adopted else "",
        )

    def _issuer(self, resources: Sequence[Resource]) -> str:
        cluster = holdings.cluster_in(resources)
        if cluster is None or self.aws is None:
            return ""
        try:
            about = self.aws.read("eks", "describe_cluster", name=cluster.id)["cluster"]
        except Unavailable:
            return ""
        return str(((about.get("identity") or {}).get("oidc") or {}).get("issuer") or "")

    @property
    def _adopted(self) -> bool:
        return isinstance(self.fleet.cluster, ExistingCluster)

    @property
    def _adopted_network(self) -> str:
        return "the VPC is adopted" if isinstance(self.fleet.network, ExistingNetwork) else ""

    @property
    def _perhaps_of_others(self) -> str:
        """Return why what has the fleet's tag may be of another stack."""
        if self.namesakes:
            return f"stack {', '.join(self.namesakes)} has a fleet of the same name"
        whole = self.fleet.holds("images") and self.fleet.holds("cluster") and self.fleet.holds("runners")
        return "" if whole else "this stack holds some layers only (paddock:layers)"

    @property
    def _cluster(self) -> Cluster:
        assert self.cluster is not None  # noqa: S101 - phases in a cluster run where there is one
        return self.cluster

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
