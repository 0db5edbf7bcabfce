"""What parts of a fleet cannot reach in a network without NAT, from the stack file to what the plan says."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from paddock.fleet import ways_out
from paddock.fleet.model.network import InterfaceEndpoint
from tests.plan.conftest import Planned, document
from tests.support.fleets import changed, fleet_data

NODES = ["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "autoscaling"]
PIPELINE = ["ssm", "ssmmessages", "imagebuilder", "logs"]
IMAGE = f"111122223333.dkr.ecr.us-west-2.amazonaws.com/runner@sha256:{'a' * 64}"
BUILDS = {"ami": {"enabled": True}}


def private(*endpoints: str, **parts: Any) -> dict[str, Any]:
    return fleet_data(network={"zones": 2, "nat": "none", "endpoints": [*NODES, *endpoints]}, **parts)


def found(plan: dict[str, Any], id_: str = "CFG010") -> list[dict[str, Any]]:
    return [finding for finding in plan["findings"] if finding["id"] == id_]


def test_pipeline_without_its_endpoints_is_named_with_the_fix(planned: Planned) -> None:
    fleet = private("ssm", "logs", images=BUILDS)
    (finding,) = found(document(planned(fleet, "--json")))
    assert (finding["severity"], finding["subject"]) == ("warning", "images.ami")
    assert "no way to ssmmessages, imagebuilder of AWS" in finding["message"]
    assert "before 3.3.40.0 also calls ec2messages" in finding["message"]
    assert "S3" in finding["message"]
    written = f"network.endpoints: [{', '.join([*NODES, 'ssm', 'logs', 'ssmmessages', 'imagebuilder'])}]"
    assert finding["fix"].startswith(written)
    code, output, _ = planned(fleet, "--details")
    assert code == 0
    assert "CFG010  images.ami: the image pipeline" in output
    assert planned(fleet, "--fail-on", "error,CFG010")[0] == 1


@pytest.mark.parametrize("older", [(), ("ec2messages",)])
def test_pipeline_with_its_endpoints_is_quiet(planned: Planned, older: tuple[str, ...]) -> None:
    plan = document(planned(private(*PIPELINE, *older, images=BUILDS), "--json"))
    assert found(plan) == []
    assert "image pipeline" not in "".join(finding["message"] for finding in found(plan, "CFG002"))


def test_endpoints_of_the_pipeline_are_made_and_priced(planned: Planned) -> None:
    plan = document(planned(private(*PIPELINE, "ec2messages", images=BUILDS), "--json"))
    endpoints = [
        resource["inputs"]
        for resource in plan["resources"]
        if resource["type"] == "aws:ec2/vpcEndpoint:VpcEndpoint"
        and resource["inputs"]["vpcEndpointType"] == "Interface"
    ]
    services = {inputs["serviceName"] for inputs in endpoints}
    assert {f"com.amazonaws.us-west-2.{name}" for name in (*PIPELINE, "ec2messages")} <= services
    (line,) = (line for line in plan["cost"]["fixed"]["items"] if line["item"] == "interface endpoints")
    assert line["quantity"] == 2 * (len(NODES) + 5)


@pytest.mark.parametrize(("parts", "services"), [
    ({"logs": {"jobs": {"to": "cloudwatch"}}}, "logs"),
    ({"monitoring": {"enabled": True, "cloudwatch": {}}}, "logs"),
    ({"images": {"ami": {"enabled": True}, "runner": IMAGE}},
     "ssm, ssmmessages, imagebuilder, logs"),
])  # fmt: skip
def test_each_part_names_the_services_it_lacks(planned: Planned, parts: dict[str, Any], services: str) -> None:
    (finding,) = found(document(planned(private(**parts), "--json")))
    assert f"no way to {services} of AWS" in finding["message"]


def test_nodes_without_any_endpoint_are_named(planned: Planned) -> None:
    fleet = private(runners={"gpu": {"pool": "t4", "volumes": {"data": {"volume": "50Gi", "mount": "/data"}}}})
    fleet["network"]["endpoints"] = []
    messages = [finding["message"] for finding in found(document(planned(fleet, "--json")))]
    assert [message.partition(":")[0] for message in messages] == [
        "nodes", "roles of pods", "Cluster Autoscaler", "EBS volumes",
    ]  # fmt: skip
    assert found(document(planned(fleet | {"network": {"zones": 2}}, "--json"))) == []


def test_internet_is_named_with_who_needs_it(planned: Planned) -> None:
    fleet = private(*PIPELINE, images=BUILDS, monitoring={"enabled": True})
    (finding,) = found(document(planned(fleet, "--json")), "CFG002")
    assert "runners need github.com" in finding["message"]
    assert "images of pods need ghcr.io, nvcr.io" in finding["message"]
    assert "the image pipeline with monitoring needs developer.download.nvidia.com" in finding["message"]
    mirrored = fleet | {"mirror": {"images": "111122223333.dkr.ecr.us-west-2.amazonaws.com/mirror"}}
    (finding,) = found(document(planned(mirrored, "--json")), "CFG002")
    assert "images of pods" not in finding["message"]


def test_every_way_is_a_choice_of_the_stack_file() -> None:
    choices = set(get_args(InterfaceEndpoint))
    assert all(choices.issuperset((*way.endpoints, *way.older)) for way in ways_out.ways())
    assert [way.name for way in ways_out.of(changed())] == [
        "nodes", "pod-identity", "autoscaler", "runners", "images-of-pods", "session-manager",
    ]  # fmt: skip
