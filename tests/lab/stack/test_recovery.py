"""Pending operations of a killed run are resolved by the resources that exist."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.lab.stack.recovery import Recovered, settled, unrecorded_ids

VPC, SUBNET = (f"urn:pulumi:dev::x::aws:ec2/{name}" for name in ("vpc:Vpc::a", "subnet:Subnet::b"))


def resource(urn: str, id_: str = "", **more: Any) -> dict[str, Any]:
    return {"urn": urn, "type": urn.split("::")[2], **({"id": id_} if id_ else {}), **more}


def pending(*urns: str, type_: str = "creating") -> list[dict[str, Any]]:
    return [{"resource": resource(urn, inputs={"x": 1}), "type": type_} for urn in urns]


@pytest.mark.parametrize(
    ("resources", "operations", "unrecorded", "after", "recovered"),
    [
        ([], pending(VPC), {}, [], Recovered(dropped=(VPC,))),
        ([], pending(VPC), {VPC: ["v1"]}, [resource(VPC, "v1", inputs={"x": 1})], Recovered(adopted=(VPC,))),
        (
            [resource(VPC, "v2")],
            pending(VPC),
            {VPC: ["v1"]},
            [resource(VPC, "v2"), resource(VPC, "v1", inputs={"x": 1}, delete=True)],
            Recovered(doubled=(VPC,)),
        ),
        (
            [],
            pending(VPC),
            {VPC: ["v1", "v2"]},
            [resource(VPC, "v1", inputs={"x": 1}), resource(VPC, "v2", inputs={"x": 1}, delete=True)],
            Recovered(adopted=(VPC,), doubled=(VPC,)),
        ),
        # What was replaced and waits to be deleted does not hold the place.
        (
            [resource(VPC, "v0", delete=True)],
            pending(VPC),
            {VPC: ["v1"]},
            [resource(VPC, "v0", delete=True), resource(VPC, "v1", inputs={"x": 1})],
            Recovered(adopted=(VPC,)),
        ),
        ([resource(VPC, "v1")], pending(VPC, type_="deleting"), {}, [resource(VPC, "v1")], Recovered()),
        ([], pending(VPC, SUBNET), {SUBNET: ["s1"]}, None, Recovered(adopted=(SUBNET,), dropped=(VPC,))),
    ],
)
def test_what_was_made_unseen_takes_its_place(
    resources: list[Any],
    operations: list[Any],
    unrecorded: dict[str, list[str]],
    after: list[Any],
    recovered: Recovered,
) -> None:
    before = {"resources": resources, "pending_operations": operations}
    settled_, outcome = settled(before, unrecorded)
    assert outcome == recovered
    assert "pending_operations" not in settled_
    assert before == {"resources": resources, "pending_operations": operations}, "its argument was changed"
    if after is not None:
        assert settled_["resources"] == after


def test_unseen_is_what_stands_in_no_state() -> None:
    state = {"resources": [resource(VPC, "v1")]}
    created = {"aws:ec2/vpc:Vpc v1": VPC, "aws:ec2/vpc:Vpc v2": VPC, "aws:ec2/subnet:Subnet s 1": SUBNET}
    assert unrecorded_ids(state, created) == {VPC: ["v2"], SUBNET: ["s 1"]}
