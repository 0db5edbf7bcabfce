"""The parts of the stand-in providers that need no engine: names, differences, store, faults, shapes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2

from paddock.lab.providers import aws, names, shapes, wire
from paddock.lab.providers.diff import DEFAULTS, Change, changes, deletes_first
from paddock.lab.providers.faults import Fault, FaultError, Faults
from paddock.lab.providers.kubernetes import Kubernetes
from paddock.lab.providers.server import STORE, RefusedError
from paddock.lab.providers.store import CHANGED, Store
from paddock.plan.engine.values import UNKNOWN, Secret

ROLE = "aws:iam/role:Role"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
SEED = bytes.fromhex("0123456789abcdef")

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text() | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(min_size=1), inner, max_size=3)
        | st.builds(Secret, inner.filter(lambda value: not isinstance(value, Secret)))
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text(min_size=1), plain, max_size=4)


@given(objects)
def test_values_survive_the_wire(value: dict[str, Any]) -> None:
    sent = wire.encode_struct(value).SerializeToString()

    assert wire.decode_struct(struct_pb2.Struct.FromString(sent)) == value


def test_a_name_is_made_up_once() -> None:
    first = names.named({"path": "/"}, "name", "node", SEED, {})
    later = names.named({"path": "/x"}, "name", "node", b"\xff" * 8, first)

    assert first == {"path": "/", "name": "node-0123456", DEFAULTS: ["name"]}
    assert later["name"] == first["name"]


@pytest.mark.parametrize("inputs", [{"name": "mine"}, {"namePrefix": "mine-"}])
def test_a_given_name_is_kept(inputs: dict[str, str]) -> None:
    assert names.named(inputs, "name", "node", SEED, {}) == {**inputs, DEFAULTS: []}


def test_a_name_that_is_no_longer_given_is_made_up_anew() -> None:
    old = {"name": "mine", DEFAULTS: []}

    assert names.named({}, "name", "node", SEED, old)["name"] == "node-0123456"


@pytest.mark.parametrize(
    ("type_", "old", "new", "expected"),
    [
        (ROLE, {"path": "/"}, {"path": "/"}, []),
        (ROLE, {"path": "/"}, {"path": "/x"}, [Change(("path",), "update", True)]),
        (ROLE, {}, {"tags": {"a": "b"}}, [Change(("tags", "a"), "add", False)]),
        (ROLE, {"tags": {}}, {}, [Change(("tags",), "delete", False)]),
        (ROLE, {"tags": None}, {}, []),
        (ROLE, {DEFAULTS: ["name"]}, {DEFAULTS: []}, []),
        (ROLE, {"description": Secret("a")}, {"description": "a"}, []),
        (NODE_GROUP, {"scalingConfig": {"maxSize": 1}}, {"scalingConfig": {"maxSize": 2}}, [("update", False)]),
        (NODE_GROUP, {"launchTemplate": {"id": "a"}}, {"launchTemplate": {"id": UNKNOWN}}, [("update", True)]),
        (NODE_GROUP, {"launchTemplate": {"version": "1"}}, {"launchTemplate": {"version": "2"}}, [("update", False)]),
        (NODE_GROUP, {"subnetIds": ["a", "b"]}, {"subnetIds": ["a"]}, [("update", True)]),
    ],
)
def test_what_differs(type_: str, old: dict[str, Any], new: dict[str, Any], expected: list[Any]) -> None:
    differences = changes(type_, old, new)

    if expected and isinstance(expected[0], tuple):
        assert [(change.kind, change.replaces) for change in differences] == expected
    else:
        assert differences == expected


@given(objects)
def test_nothing_differs_from_itself(value: dict[str, Any]) -> None:
    assert changes(ROLE, value, value) == []


@pytest.mark.parametrize(
    ("declared", "first"),
    [
        ({"name": "mine", "path": "/x", DEFAULTS: []}, True),
        ({"name": "node-0123456", "path": "/x", DEFAULTS: ["name"]}, False),
        ({"path": "/x", DEFAULTS: []}, False),
    ],
)
def test_a_chosen_name_is_freed_before_it_is_used_again(declared: dict[str, Any], first: bool) -> None:
    assert deletes_first(declared, [Change(("path",), "update", True)]) is first
    assert deletes_first(declared, [Change(("tags",), "update", False)]) is False


def test_another_name_needs_no_place_freed() -> None:
    assert deletes_first({"name": "new", DEFAULTS: []}, [Change(("name",), "update", True)]) is False


def test_the_store_reveals_no_secret(tmp_path: Path) -> None:
    store = Store(tmp_path / "cloud" / "dev.json")
    values = {"data": {"key": Secret("hush-hush")}, "open": 1}
    with store.change() as resources:
        resources["a"] = store.hash_secrets(values)

    stored = store.resources()["a"]

    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "hush" in path.read_text()]
    assert store.restore_secrets(stored, values) == values
    assert store.restore_secrets(stored, {"data": {"key": Secret("other")}})["data"]["key"] == Secret(CHANGED)
    assert store.restore_secrets(stored, {})["data"]["key"] == Secret(CHANGED)


def test_what_is_adopted_keeps_its_secrets(tmp_path: Path) -> None:
    """A run that is killed leaves what it was making with inputs alone; a refresh then reads it for the first time."""
    cloud = Kubernetes({STORE: str(tmp_path / "dev.json")})
    type_, inputs = "kubernetes:core/v1:Secret", {"metadata": {"name": "a"}, "stringData": {"key": Secret("hush-hush")}}
    urn = f"urn:pulumi:dev::paddock::{type_}::a"
    sent = wire.encode_struct(inputs)
    created = cloud.Create(provider_pb2.CreateRequest(urn=urn, properties=sent), None)

    read = cloud.Read(provider_pb2.ReadRequest(id=created.id, urn=urn, inputs=sent), None)

    assert wire.decode_struct(read.inputs) == inputs


def test_a_change_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "dev.json")
    with store.change() as resources:
        resources["a"] = 1

    def fail() -> None:
        with store.change() as resources:
            resources["b"] = 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert store.resources() == {"a": 1}


def test_many_may_change_the_store_at_once(tmp_path: Path) -> None:
    def add(number: int) -> None:
        with Store(tmp_path / "dev.json").change() as resources:
            resources[str(number)] = number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))

    assert len(Store(tmp_path / "dev.json").resources()) == 40


def test_a_fault_is_met_as_often_as_it_says(tmp_path: Path) -> None:
    text = json.dumps([{"resource": "*::node", "operation": "create", "error": "Throttling", "times": 2}])
    faults = Faults.of({"PADDOCK_LAB_FAULTS": text})

    faults.meet("create", "urn::other")
    faults.meet("delete", "urn::node")
    for _ in range(2):
        with pytest.raises(FaultError, match="Throttling"):
            faults.meet("create", "urn::node")
    faults.meet("create", "urn::node")


def test_no_fault_is_met_where_none_was_asked_for() -> None:
    Faults.of({}).meet("create", "urn::node")
    Faults([Fault(operation="update")]).meet("update", "urn::node")


@pytest.mark.parametrize(
    ("type_", "name"),
    [(ROLE, "name"), (NODE_GROUP, "nodeGroupName"), ("aws:ec2/vpc:Vpc", None), (LAUNCH_TEMPLATE, "name")],
)
def test_which_property_gets_a_name(type_: str, name: str | None) -> None:
    shape = shapes.shape(type_)

    assert shape is not None
    assert shape.name == name


def test_outputs_have_their_declared_types() -> None:
    shape = shapes.shape(LAUNCH_TEMPLATE)
    assert shape is not None

    created = shapes.filled(shape, "lt-1", {"arn": "arn"})

    assert isinstance(created["latestVersion"], int)
    assert "arn" not in created
    assert shapes.shape("aws:ec2/nothing:Nothing") is None


@pytest.fixture
def provider(tmp_path: Path) -> aws.Aws:
    return aws.Aws({"PADDOCK_LAB_STORE": str(tmp_path / "dev.json")})


def test_a_changed_template_gets_a_version_unless_only_tags_changed(provider: aws.Aws) -> None:
    created = provider.created(LAUNCH_TEMPLATE, "lt-1", {"name": "t4"})
    image, tags = Change(("imageId",), "update", False), Change(("tags",), "update", False)

    rolled = {"name": "t4", "imageId": "ami-2"}
    previewed = provider.updated(LAUNCH_TEMPLATE, rolled, created, [image], preview=True)
    applied = provider.updated(LAUNCH_TEMPLATE, rolled, created, [image], preview=False)
    tagged = provider.updated(LAUNCH_TEMPLATE, {"name": "t4"}, created, [tags], preview=False)

    versions = [state["latestVersion"] for state in (created, previewed, applied, tagged)]
    assert versions == [1, UNKNOWN, 2, 1]


def test_a_node_group_exports_its_scaling_group_and_account(provider: aws.Aws) -> None:
    created = provider.created(NODE_GROUP, "fleet:t4", {"nodeGroupName": "t4-spot-0123456", "clusterName": "fleet"})

    assert created["resources"][0]["autoscalingGroups"][0]["name"].startswith("eks-t4-spot-0123456-")
    assert ":000000000000:" in created["arn"]


def test_ids_are_unlike_unless_aws_knows_the_thing_by_name(provider: aws.Aws) -> None:
    urn = "urn:pulumi:dev::paddock::aws:ec2/vpc:Vpc::network"
    entry = {"clusterName": "fleet", "principalArn": "arn:aws:iam::1:role/a"}

    vpcs = {provider.identity("aws:ec2/vpc:Vpc", urn, {}, {}, serial) for serial in range(5)}
    entries = {provider.identity("aws:eks/accessEntry:AccessEntry", urn, entry, {}, serial) for serial in range(5)}

    assert len(vpcs) == 5
    assert all(id_.startswith("vpc-") for id_ in vpcs)
    assert entries == {"fleet:arn:aws:iam::1:role/a"}


def test_a_protected_cluster_says_how_it_may_go(provider: aws.Aws) -> None:
    with pytest.raises(RefusedError, match="deletionProtection: false"):
        provider.may_delete("aws:eks/cluster:Cluster", {"name": "fleet", "deletionProtection": True})
    provider.may_delete("aws:eks/cluster:Cluster", {"name": "fleet", "deletionProtection": False})


def test_an_eks_cluster_is_the_labs_own_where_there_is_one(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Q0E="}
    kubeconfig.write_text(json.dumps({"clusters": [{"name": "lab", "cluster": cluster}]}))
    provider = aws.Aws({"PADDOCK_LAB_STORE": str(tmp_path / "dev.json"), "PADDOCK_LAB_KUBECONFIG": str(kubeconfig)})

    created = provider.created("aws:eks/cluster:Cluster", "fleet", {"name": "fleet"})
    answer = provider.answer("aws:eks/getCluster:getCluster", {"name": "fleet"})

    assert (created["endpoint"], created["certificateAuthority"]) == ("https://127.0.0.1:6443", {"data": "Q0E="})
    assert answer is not None
    assert answer["endpoint"] == "https://127.0.0.1:6443"
    assert provider.answer("aws:ec2/getAmi:getAmi", {}) is None
