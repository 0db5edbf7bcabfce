"""Removal of a fleet with stand-ins for the cluster's objects, Pulumi and AWS: order, refusals, what is left."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet import Stack
from paddock.operate.connect import NoCluster
from paddock.operate.destroy import command, holdings, leftovers
from paddock.operate.destroy.command import Destroy, carry_out, prepare, reported
from paddock.operate.destroy.destroy import Cluster, Destroying
from paddock.operate.destroy.report import FREE, NEEDED, Destroyed, Item
from paddock.operate.inventory import made_by_others
from paddock.operate.inventory.made_by_others import Scope
from paddock.operate.parameters import declined
from paddock.operate.phases import Refused, Watch
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound
from paddock.pulumi_cli.stack import PulumiError, Resource
from tests.operate.conftest import AT
from tests.support import fleets
from tests.support.aws_account import DENIED, REGION, Account, Answer, Refusal
from tests.support.chain_objects import ARC, POD, RUNNERS
from tests.support.chain_world import World
from tests.support.changes import StandInForChanges
from tests.support.engine_stand_in import (
    CLUSTER,
    KEY,
    NODES,
    REPOSITORY,
    SET,
    STATEFUL_SET,
    StandInForPulumi,
    stack,
)
from tests.support.left_behind import nothing_left

ROOT = Path(__file__).parents[2]
TAGGED = "resourcegroupstaggingapi.GetResources"


NOTHING_LEFT: dict[str, Answer] = {**nothing_left(), "ecr.ListImages": {}}


@dataclass
class Case:
    """A fleet that is removed. `claims` and `volumes` are objects of the cluster; its clock moves when it sleeps."""

    world: World
    answers: dict[str, Answer] = field(default_factory=NOTHING_LEFT.copy)
    claims: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    built_on: Mapping[str, Callable[[], Sequence[Resource]]] = field(default_factory=dict)
    namesakes: Sequence[str] = ()
    reachable: bool = True
    now: float = 0.0
    stuck: str = ""
    """A kind whose finalizers ARC does not remove."""

    def __post_init__(self) -> None:
        self.writer = StandInForChanges(self.world)
        self.pulumi = StandInForPulumi(stack("0.14.2"))

    def destroying(self, **flags: bool) -> Destroying:
        def sleep(seconds: float) -> None:
            self.now += max(seconds, 0.01)

        def objects(version: str, kind: str) -> list[dict[str, Any]]:
            found = {"PersistentVolumeClaim": self.claims, "PersistentVolume": self.volumes}
            return copy.deepcopy(found.get(kind, [item for item in self.world.objects if item["kind"] == kind]))

        reached = Cluster(self.world.snapshot, objects, self)
        return Destroying(
            self.world.fleet,
            "dev",
            self.pulumi,
            reached if self.reachable else None,
            AwsReader(REGION, Account(self.answers).clients),
            lambda text: None,
            60.0,
            None if self.reachable else NoCluster("the cluster cannot be reached: refused"),
            built_on=self.built_on,
            namesakes=self.namesakes,
            watch=Watch(5.0, sleep, lambda: self.now),
            **flags,
        )

    def run(self, **flags: bool) -> Destroyed:
        destroying = self.destroying(**flags)
        plan = prepare(destroying)
        course = destroying.run(plan)
        left = destroying.left(plan)
        return reported(destroying, plan, course, left, context="lab", seconds=0.0, flags=" --stack dev")

    def patch(self, item: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        self.writer.patch(item, change)

    def has(self, item: Mapping[str, Any]) -> bool:
        place = (item["kind"], item["metadata"]["name"])
        return any((one["kind"], one["metadata"]["name"]) == place for one in self.world.objects)

    def delete(self, item: Mapping[str, Any]) -> None:
        if item["kind"] in ("EphemeralRunner", "Pod") and not self.has(item):
            raise NotFound("it is gone")
        if item["kind"] == "EphemeralRunner":  # ARC waits for its job
            self.world.get("EphemeralRunner")["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
            return
        if item["kind"] == "Pod":  # GitHub says that its job is over, and ARC removes its finalizer
            self.world.drop("Pod", item["metadata"]["name"])
            self.world.drop("EphemeralRunner", item["metadata"]["name"])
            return
        if item["kind"] == "AutoscalingRunnerSet":
            self.retire()
            return
        self.claims = [one for one in self.claims if one["metadata"]["name"] != item["metadata"]["name"]]
        self.volumes = [one for one in self.volumes if one["spec"]["persistentVolumeReclaimPolicy"] != "Delete"]

    def retire(self) -> None:
        """Remove what ARC made, as it does when a scale set is deleted."""
        for kind in ("AutoscalingListener", "EphemeralRunner", "EphemeralRunnerSet", "AutoscalingRunnerSet"):
            for item in [one for one in self.world.objects if one["kind"] == kind]:
                if kind == self.stuck:
                    item["metadata"] |= {"finalizers": ["a/b"], "deletionTimestamp": "2026-11-24T12:00:00Z"}
                else:
                    self.world.objects.remove(item)

    def with_volume(self, policy: str) -> None:
        meta = {"name": "data-prometheus-0", "namespace": RUNNERS}
        self.claims = [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"volumeName": "pvc-1"}}
        ]
        spec = {"persistentVolumeReclaimPolicy": policy}
        self.volumes = [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-1"}, "spec": spec}]
        inputs = {"metadata": {"namespace": RUNNERS}}
        self.pulumi.held.append(Resource(STATEFUL_SET, "kubernetes:apps/v1:StatefulSet", "a/p", inputs=inputs))


@pytest.fixture
def case(stack: Stack) -> Case:
    world = World(stack, AT)
    world.no_runner()
    return Case(world)


def phases(outcome: Destroyed) -> dict[str, str]:
    return {phase.name: phase.state for phase in outcome.phases}


def test_runners_sign_off_before_the_rest_goes(case: Case) -> None:
    outcome = case.run()
    assert phases(outcome) == {
        "drain": "done",
        "runners end": "unchanged",
        "sign off": "done",
        "scale sets": "done",
        "volumes": "unchanged",
        "the rest": "done",
    }
    assert [name for name, _ in case.pulumi.runs] == ["destroy targets", "destroy"]
    assert {item.urn for item in case.pulumi.held} == {KEY, CLUSTER, REPOSITORY}
    assert (outcome.failed, outcome.left) == (False, ())


def test_second_run_finds_nothing_to_do(case: Case) -> None:
    case.run()
    case.pulumi.runs.clear()
    outcome = case.run()
    assert (outcome.phases, case.pulumi.runs) == ((), [])
    assert {item.reason.partition(":")[0] for item in outcome.stays} >= {"protected"}


def test_protected_things_stay_and_cost(case: Case) -> None:
    stays = {item.what: item for item in case.run().stays}
    cluster = stays["eks Cluster cluster-eksCluster (paddock-dev)"]
    assert cluster.reason == "protected: the runners, and everything in the cluster, are gone with it"
    assert (cluster.usd_per_month, cluster.removal) == (73.0, "./inv destroy --with-protected")
    assert stays["CRD autoscalingrunnersets.actions.github.com"].removal.startswith("kubectl delete crd")
    assert stays["the encrypted credential for GitHub in the stack file"].removal.startswith("delete the App's key")


@pytest.mark.parametrize(
    ("capacity", "cost", "removal"),
    [
        ({"reserved": "cr-0123456789abcdef0"}, " USD/hour (", "aws ec2 cancel-capacity-reservation "),
        ({"capacityBlock": "cr-0123456789abcdef0"}, "paid in advance", ""),
    ],
)
def test_capacity_that_is_paid_for_without_nodes_is_named(capacity: dict[str, str], cost: str, removal: str) -> None:
    pool = {"instances": ["p5.48xlarge"], "capacity": capacity, "zones": ["us-west-2b"], "nodes": {"max": 1}}
    stack = fleets.stack(fleets.fleet_data(pools={"h100": pool}, runners={"gpu": {"pool": "h100"}}))
    (item,) = (one for one in holdings.stays(stack.fleet, (), (), {}, (), ()) if "cr-0123456789abcdef0" in one.what)
    assert cost in item.cost
    assert item.removal.startswith(removal)
    assert bool(item.removal) == bool(removal)


def test_with_protected_keys_are_pending_and_crds_go_with_their_cluster(case: Case) -> None:
    outcome = case.run(with_protected=True)
    assert case.pulumi.held == []
    stays = {item.what: item.reason for item in outcome.stays}
    assert stays["kms Key cluster-secrets (key-1)"].startswith("pending deletion for 30 days")
    assert not [what for what in stays if what.startswith("CRD")]


def test_repositories_with_images_stay_even_with_protected(case: Case) -> None:
    case.answers["ecr.ListImages"] = {"imageIds": [{"imageTag": "1"}, {"imageTag": "2"}]}
    outcome = case.run(with_protected=True)
    assert [item.urn for item in case.pulumi.held] == [REPOSITORY]
    (item,) = (item for item in outcome.stays if item.what.startswith("ecr"))
    assert item.reason == "2 images are in it"
    assert "aws ecr delete-repository --force --repository-name paddock-dev/runner-gpu" in item.removal


def test_eks_own_protection_is_refused_before_anything_goes(case: Case) -> None:
    inputs = {"deletionProtection": True}
    case.pulumi.held[1] = Resource(CLUSTER, "aws:eks/cluster:Cluster", "paddock-dev", protect=True, inputs=inputs)
    said = "aws eks update-cluster-config --name paddock-dev --no-deletion-protection"
    with pytest.raises(Refused, match=said):
        case.run(with_protected=True)
    assert case.pulumi.runs == []
    case.answers["eks.DescribeCluster"] = {"cluster": {"name": "paddock-dev", "deletionProtection": False}}
    assert not case.run(with_protected=True).failed


def test_running_jobs_are_refused_with_both_ways(stack: Stack) -> None:
    case = Case(World(stack, AT))
    said = r"1 jobs run: arc-runners/gpu-abc12-runner-x1: test[\s\S]*runners.drain.*--with-running-jobs"
    with pytest.raises(Refused, match=said):
        case.run()
    assert case.world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] > 0


def test_running_jobs_are_ended_on_request(stack: Stack) -> None:
    case = Case(World(stack, AT))
    case.stuck = "EphemeralRunner"
    outcome = case.run(with_running_jobs=True)
    assert outcome.jobs == ("arc-runners/gpu-abc12-runner-x1: test",)
    assert (outcome.failed, phases(outcome)["sign off"]) == (False, "done")
    assert not [item for item in case.world.objects if item["metadata"]["name"] == POD]


def test_idle_runners_past_the_deadline_stop_it(stack: Stack) -> None:
    case = Case(World(stack, AT))
    case.world.get("EphemeralRunner")["status"] = {"phase": "Running", "runnerId": 9}
    outcome = case.run()
    assert phases(outcome) == {"drain": "done", "runners end": "failed"}
    assert "destroy --stack dev --yes continues" in outcome.next


@pytest.mark.parametrize("kind", ["AutoscalingRunnerSet", "EphemeralRunner", "AutoscalingListener"])
def test_stuck_finalizer_is_named_with_its_fix(stack: Stack, kind: str) -> None:
    case = Case(World(stack, AT), stuck=kind)
    case.world.drop("Pod", POD)
    outcome = case.run(with_running_jobs=True)
    failed = outcome.phases[-1]
    assert (failed.name, failed.state) == ("sign off", "failed")
    assert f"{kind} " in failed.details[0]
    assert "held by a/b" in failed.details[0]
    assert f"patch {kind.lower()}" in failed.fix
    assert NODES in {item.urn for item in case.pulumi.held}
    case.world.drop(kind)
    assert not case.run(with_running_jobs=True).failed


def test_volumes_go_before_the_nodes_and_their_driver(case: Case) -> None:
    case.with_volume("Delete")
    outcome = case.run()
    assert phases(outcome)["volumes"] == "done"
    assert case.pulumi.runs[1][0] == "destroy targets"
    assert STATEFUL_SET in case.pulumi.runs[1][1]
    assert (case.claims, case.volumes) == ([], [])


def test_retained_volume_is_named_as_staying(case: Case) -> None:
    case.with_volume("Retain")
    outcome = case.run()
    (item,) = (item for item in outcome.stays if item.what.startswith("volume"))
    assert (item.reason, item.removal[:20]) == ("its reclaim policy is Retain", "kubectl delete pv pv")
    assert not outcome.failed


def test_claims_of_other_namespaces_are_left_alone(case: Case) -> None:
    case.with_volume("Delete")
    case.claims[0]["metadata"]["namespace"] = "somebody"
    assert phases(case.run())["volumes"] == "unchanged"
    assert case.claims


def test_a_claim_that_a_pod_keeps_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.with_volume("Delete")
    case.claims[0]["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    case.retire()
    monkeypatch.setattr(case, "delete", lambda item: None)
    failed = case.run().phases[-1]
    assert (failed.name, failed.state) == ("volumes", "failed")
    assert "kubernetes.io/pvc-protection" in failed.details[0]


def test_failed_and_interrupted_runs_go_on(case: Case) -> None:
    case.pulumi.fails = "destroy"
    first = case.run()
    assert (phases(first)["the rest"], first.failed) == ("failed", True)
    case.pulumi.fails, case.pulumi.interrupted = "", "destroy"
    second = case.run()
    assert (second.interrupted, phases(second)["scale sets"]) == (True, "unchanged")
    assert "destroy --stack dev --yes continues" in second.next
    case.pulumi.interrupted = ""
    assert not case.run().failed


def test_a_run_that_pulumi_calls_done_is_counted_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted `pulumi destroy` may say that it succeeded."""
    monkeypatch.setattr(case.pulumi, "destroy", lambda notify, **kwargs: case.pulumi.preview())
    case.pulumi.held = [item for item in case.pulumi.held if item.urn != SET]
    case.retire()
    failed = case.run().phases[-1]
    assert (failed.name, failed.state) == ("the rest", "failed")
    assert "4 resources are left" in failed.message


def test_stack_that_stands_on_this_one_goes_first(case: Case) -> None:
    case.built_on = {"empty": lambda: (), "runners": lambda: stack("0.14.2")}
    with pytest.raises(Refused, match=r"stack runners is built on parts of dev[\s\S]*destroy --stack runners"):
        case.run()
    assert case.pulumi.runs == []


def test_scale_sets_of_others_keep_the_cluster(case: Case) -> None:
    meta = {"name": "theirs", "namespace": "x"}
    case.world.objects.append({"apiVersion": ARC, "kind": "AutoscalingRunnerSet", "metadata": meta, "spec": {}})
    with pytest.raises(Refused, match="x/theirs"):
        case.run()


def test_unreachable_cluster_is_refused_while_objects_are_in_it(case: Case) -> None:
    case.reachable = False
    with pytest.raises(Refused, match="cannot be reached: refused"):
        case.run()
    case.pulumi.held = [item for item in case.pulumi.held if not item.type.startswith("kubernetes:")]
    assert not case.run().failed


def test_cluster_without_arc_loses_the_rest(case: Case) -> None:
    for kind in ("AutoscalingRunnerSet", "AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner"):
        case.world.objects = [item for item in case.world.objects if item["kind"] != kind]
        case.world.absent.add(kind)
    assert phases(case.run())["drain"] == "unchanged"


def test_a_denied_way_is_unknown_and_nothing_is_not_said(case: Case) -> None:
    for way, permission in ((TAGGED, "tag:GetResources"), ("logs.DescribeLogGroups", "logs:DescribeLogGroups")):
        case.answers = {**NOTHING_LEFT, way: DENIED}
        outcome = case.run()
        assert outcome.left == ()
        assert [text.rpartition("missing: ")[2] for text in outcome.unknown] == [permission]
        assert outcome.failed
        assert "is left: AWS was asked" not in "\n".join(outcome.text())


def test_without_credentials_nothing_is_said_of_what_is_left(case: Case) -> None:
    case.answers = {name: Refusal("UnrecognizedClientException") for name in NOTHING_LEFT}
    left, unknown = case.destroying().left(prepare(case.destroying()))
    assert left is None
    assert len(unknown) == 1


def test_a_state_that_the_backend_lost_is_said_and_looked_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> tuple[Resource, ...]:
        raise PulumiError("pulumi stack export failed: error: no stack named 'dev' found")

    monkeypatch.setattr(case.pulumi, "resources", lost)
    group = {"logGroupName": "/aws/eks/paddock-dev/cluster", "storedBytes": 10}
    case.answers["logs.DescribeLogGroups"] = lambda asked: {
        "logGroups": [group] if group["logGroupName"].startswith(asked["logGroupNamePrefix"]) else []
    }
    outcome = case.run()
    assert outcome.phases == ()
    assert [item.removal for item in outcome.left or ()] == [
        "aws logs delete-log-group --log-group-name /aws/eks/paddock-dev/cluster"
    ]
    assert outcome.unknown == ("Pulumi's backend has no stack dev: what it may have made is looked for in AWS alone",)


@pytest.mark.parametrize("why", ["layers", "namesake"])
def test_what_may_be_of_another_stack_is_not_offered_for_removal(case: Case, why: str) -> None:
    case.answers[TAGGED] = {"ResourceTagMappingList": [{"ResourceARN": arn("kms", "key/theirs"), "Tags": []}]}
    case.namesakes = ("old",) if why == "namesake" else ()
    destroying = case.destroying()
    plan = prepare(destroying)
    if why == "layers":
        layers = destroying.fleet.layers.model_copy(update={"cluster": "acme/paddock/base"})
        destroying.fleet = destroying.fleet.model_copy(update={"layers": layers})
    (item,) = destroying.left(plan)[0] or ()
    assert item.reason.startswith("perhaps another's")
    assert item.removal == "where nobody else has it: aws kms schedule-key-deletion --key-id theirs"


def test_denied_images_are_unknown_and_the_repository_is_tried(case: Case) -> None:
    case.answers["ecr.ListImages"] = DENIED
    destroying = case.destroying(with_protected=True)
    assert destroying.plan().exclude == ()
    assert "missing: ecr:ListImages" in str(destroying._images(case.pulumi.resources())[REPOSITORY])


# What AWS still has.

ACCOUNT = "123456789012"


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{rest}"


def left(answers: Mapping[str, Answer], *arns: str, kept: Sequence[Resource] = ()) -> dict[str, Item]:
    listed = {"ResourceTagMappingList": [{"ResourceARN": one, "Tags": []} for one in arns]}
    reader = AwsReader(REGION, Account({**NOTHING_LEFT, TAGGED: listed, **answers}).clients)
    things = made_by_others.read(reader, Scope("paddock-dev")).things
    return {item.what: item for item in leftovers.items(REGION, things, kept)}


def test_each_leftover_has_cost_reason_and_removal() -> None:
    volume = {"VolumeId": "vol-1", "Size": 50, "VolumeType": "gp3", "State": "available"}
    found = left(
        {"ec2.DescribeVolumes": {"Volumes": [volume]}},
        arn("ec2", "volume/vol-1"),
        arn("ec2", "natgateway/nat-1"),
        arn("ec2", "image/ami-1"),
        arn("glue", "job/unheard-of"),
    )
    one = found[arn("ec2", "volume/vol-1")]
    assert (one.usd_per_month, "50 GiB gp3, available" in one.reason) == (4.0, True)
    assert one.removal == "aws ec2 delete-volume --volume-id vol-1"
    assert found[arn("ec2", "natgateway/nat-1")].usd_per_month == 32.85
    assert "deregister-image --image-id ami-1" in found[arn("ec2", "image/ami-1")].removal
    assert "still lists for a while" in found[arn("glue", "job/unheard-of")].reason


def test_what_only_the_tag_api_still_lists_is_not_left() -> None:
    cluster = (arn("eks", "cluster/paddock-dev"), arn("eks", "nodegroup/paddock-dev/t4-spot/0a-1"))
    gone = Refusal("ResourceNotFoundException")
    nothing: dict[str, Answer] = {"ec2.DescribeVolumes": {}, "eks.DescribeCluster": gone}
    assert left(nothing, arn("ec2", "volume/vol-1"), *cluster) == {}


def test_key_pending_deletion_says_until_when() -> None:
    about = {"KeyId": "key-9", "KeyState": "PendingDeletion", "DeletionDate": datetime(2026, 12, 24, tzinfo=UTC)}
    (item,) = left({"kms.DescribeKey": {"KeyMetadata": about}}, arn("kms", "key/key-9")).values()
    assert "pending deletion until 2026-12-24" in item.reason
    assert item.usd_per_month == 0.0


def test_what_the_state_still_has_says_why() -> None:
    kept = [Resource(KEY, "aws:kms/key:Key", "key-1", protect=True)]
    (item,) = left({}, arn("kms", "key/key-1"), kept=kept).values()
    assert item.reason == "in the stack's state: it is protected"


def test_reasons_of_protection_are_those_of_the_page() -> None:
    page = (ROOT / "docs/protected.md").read_text().replace(" (Kubernetes secrets, logs, images, machine images)", "")
    assert [reason for reason in holdings.PROTECTED.values() if reason not in page] == []


# The command.


def test_the_stack_name_must_be_typed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ROOT", str(ROOT))
    monkeypatch.setenv("KUBECONFIG", str(ROOT / "none"))
    monkeypatch.setattr(command, "Destroying", lambda *given: case.destroying())
    for place in ("paddock.operate.destroy.command", "paddock.console.question"):
        monkeypatch.setattr(f"{place}.can_ask", lambda json: True)
    for typed in ("y", "prod"):
        monkeypatch.setattr("builtins.input", lambda typed=typed: typed)
        assert carry_out(Destroy(), case.pulumi) == declined()
    assert case.pulumi.runs == []
    monkeypatch.setattr("builtins.input", lambda: " dev ")
    assert isinstance(carry_out(Destroy(), case.pulumi), Destroyed)
    assert case.pulumi.runs


def test_the_screen_folds_what_is_free(case: Case) -> None:
    outcome = case.run()
    needed = [Item(what=f"ec2 Subnet s-{n} (s-{n})", reason=NEEDED, cost=FREE) for n in (1, 2)]
    text = "\n".join(replace(outcome, stays=(*outcome.stays, *needed)).text())
    assert "goes        4 resources: 2 Release, 1 NodeGroup, 1 Namespace" in text
    assert "stays       2 free things that what is protected needs: 2 ec2 Subnet" in text
    assert "nothing else is left: AWS was asked by tag, cluster, VPC, name and owner" in text


def test_the_page_shows_what_a_removal_prints(case: Case) -> None:
    printed = "".join(f"{line}\n" for line in case.run().text())
    assert printed in (ROOT / "docs/day-two.md").read_text()


def test_going_on_has_the_flags_of_before() -> None:
    parameters = Destroy(stack="prod", context="c", with_running_jobs=True, with_protected=True)
    assert parameters.again == " --stack prod --context c --with-running-jobs --with-protected"
