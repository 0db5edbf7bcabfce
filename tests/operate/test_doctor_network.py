"""The doctor on an adopted network: addresses by the CNI's settings, ways out, and where images are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.fleet.sizing.addresses import Cni
from paddock.operate.inventory.network import read_cni
from paddock.operate.sources.aws import AwsReader
from tests.operate.conftest import Examine
from tests.support.aws_account import DENIED, REGION, Account, Answer, Refusal

VPC = "vpc-0aaaaaaaaaaaaaaa0"
FIRST, SECOND = SUBNETS = ("subnet-0aaaaaaaaaaaaaaa0", "subnet-0aaaaaaaaaaaaaaa1")
SERVICES = ("ec2", "ecr.api", "ecr.dkr", "eks-auth", "autoscaling", "eks")


@pytest.fixture
def adopted(project: Path) -> Path:
    return _written(project, f"    network: {{existing: {{vpc: {VPC}, subnets: [{', '.join(SUBNETS)}]}}}}\n")


@pytest.fixture
def adopted_cluster(adopted: Path) -> Path:
    path = adopted / "Pulumi.dev.yaml"
    text = path.read_text()
    start = text.index("    cluster:\n")
    end = text.index("    network:\n") if "    network:\n" in text else text.index("    network: ")
    path.write_text(f'{text[:start]}    cluster: {{existing: shared, version: "1.36"}}\n{text[end:]}')
    return adopted


def _written(project: Path, lines: str) -> Path:
    path = project / "Pulumi.dev.yaml"
    text = path.read_text()
    path.write_text(text.replace("    pools:\n", f"{lines}    pools:\n"))
    return project


def subnets(*free: int) -> dict[str, Answer]:
    rows = [
        {"SubnetId": id_, "VpcId": VPC, "AvailabilityZone": f"{REGION}{zone}", "AvailableIpAddressCount": count}
        for id_, zone, count in zip(SUBNETS, "bc", free or (4000, 4000), strict=True)
    ]
    return {"ec2.DescribeSubnets": {"Subnets": rows}, **routes()}


def routes(*found: dict[str, Any], endpoints: tuple[str, ...] = (), state: str = "available") -> dict[str, Answer]:
    """Answer with one main route table that has these routes, and with interface endpoints and the S3 gateway."""
    table = {"RouteTableId": "rtb-1", "Routes": list(found), "Associations": [{"Main": True}]}
    there: list[dict[str, Any]] = [
        {"VpcEndpointType": "Interface", "ServiceName": f"com.amazonaws.{REGION}.{name}", "PrivateDnsEnabled": True}
        for name in endpoints
    ]
    if endpoints:
        gateway = {
            "VpcEndpointType": "Gateway",
            "ServiceName": f"com.amazonaws.{REGION}.s3",
            "RouteTableIds": ["rtb-1"],
        }
        there.append(gateway)
    return {
        "ec2.DescribeRouteTables": {"RouteTables": [table]},
        "ec2.DescribeVpcEndpoints": {"VpcEndpoints": [{**endpoint, "State": state} for endpoint in there]},
    }


def default(**to: str) -> dict[str, Any]:
    return {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **to}


def addon(settings: str) -> dict[str, Answer]:
    return {
        "eks.DescribeCluster": {"cluster": {"status": "ACTIVE", "version": "1.36"}},
        "eks.DescribeAddon": {"addon": {"addonName": "vpc-cni", "configurationValues": settings}},
    }


def test_too_few_addresses_for_an_update_warn(examination: Examine, adopted: Path) -> None:
    # Three of five nodes with 20 addresses each, two of four system nodes with 30, four of the control plane; an update
    # takes two nodes more of both, and five for the control plane.
    need, update = 3 * 20 + 2 * 30 + 4, 2 * 20 + 2 * 30 + 5
    answers = subnets(need + update - 1, need - 1)
    lines = [examination(answers).line("network", id_) for id_ in SUBNETS]
    assert [line.status for line in lines] == ["warn", "fail"]
    assert f"{need} are needed at most, and {update} more while an update" in lines[0].message
    assert examination(subnets(need + update, need + update)).line("network", FIRST).status == "pass"


@pytest.mark.parametrize(("settings", "need", "words"), [
    ("", 3 * 20, "needed at most"),
    ('{"env": {"ENABLE_PREFIX_DELEGATION": "true"}}', 3 * 17, "in prefixes of 16 that must be whole"),
    ("env:\n  WARM_IP_TARGET: 2\n", 3 * 18, "needed at most"),
    ('{"env": {"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": true}}', 3, "needed at most"),
])  # fmt: skip
def test_addresses_follow_the_settings_of_an_adopted_cni(
    examination: Examine, adopted_cluster: Path, settings: str, need: int, words: str
) -> None:
    line = examination({**subnets(), **addon(settings)}).line("network", FIRST)
    assert f"{need} are needed" in line.message
    assert words in line.message


def test_unread_settings_of_a_cni_are_said(examination: Examine, adopted_cluster: Path) -> None:
    denied = examination({**subnets(), **addon(""), "eks.DescribeAddon": DENIED}).line("network", FIRST)
    assert (denied.status, "unknown for lack of eks:DescribeAddon" in denied.message) == ("pass", True)
    missing = Refusal("ResourceNotFoundException", "No addon: vpc-cni found")
    line = examination({**subnets(), **addon(""), "eks.DescribeAddon": missing}).line("network", FIRST)
    assert "its settings are unknown: " in line.message


def test_settings_of_a_cni_that_nobody_expects() -> None:
    def read(settings: str) -> Cni:
        return read_cni(AwsReader(REGION, Account(addon(settings)).clients), "shared")

    assert read("[]") == read('{"env": []}') == Cni()
    assert read('{"env": {"MINIMUM_IP_TARGET": "many"}}') == Cni(by_address=True)
    assert read('{"env": {"MINIMUM_IP_TARGET": "20"}}') == Cni(by_address=True, minimum=20)


@pytest.mark.parametrize(("route", "status"), [
    (default(NatGatewayId="nat-1"), "pass"),
    (default(TransitGatewayId="tgw-1"), "pass"),
    (default(NatGatewayId="nat-1", State="blackhole"), "warn"),
    (default(GatewayId="igw-1"), "warn"),  # nodes have no public addresses
    ({"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}, "warn"),
])  # fmt: skip
def test_default_route_that_leads_out_passes(
    examination: Examine, adopted: Path, route: dict[str, Any], status: str
) -> None:
    assert examination({**subnets(), **routes(route)}).line("network", "ways out").status == status


def test_subnets_without_a_way_out_name_what_lacks_it(examination: Examine, adopted: Path) -> None:
    line = examination(subnets()).line("network", "ways out")
    assert (
        f"{FIRST}, {SECOND} without a default route or an endpoint of ec2 (nodes, Cluster Autoscaler)" in line.message
    )
    for part in ("ecr.dkr (nodes)", "s3 (nodes)", "eks-auth (roles of pods)", "the internet (runners, images of pods)"):
        assert part in line.message
    assert f"--vpc-id {VPC}" in line.fix


def test_endpoints_that_are_there_are_not_missed(examination: Examine, adopted: Path) -> None:
    line = examination({**subnets(), **routes(endpoints=SERVICES)}).line("network", "ways out")
    assert (line.status, "endpoint" in line.message) == ("warn", False)
    assert "without a default route: what needs the internet" in line.message
    pending = examination({**subnets(), **routes(endpoints=SERVICES, state="pending")}).line("network", "ways out")
    assert "or an endpoint of ec2" in pending.message


def test_pipeline_builds_where_its_types_are_offered(examination: Examine, project: Path) -> None:
    _written(project, "    images: {ami: {enabled: true, instances: [g5.xlarge]}}\n")

    def offered(zones: str) -> str:
        rows = [{"InstanceType": "g5.xlarge", "Location": f"{REGION}{zone}"} for zone in zones]
        answer: dict[str, Answer] = {"ec2.DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": rows}}
        return examination(answer).line("capacity", "images.ami offered").status

    assert offered("a") == "pass"
    assert offered("bc") == "fail"


@pytest.mark.parametrize(("off", "flags"), [
    ((), ()),
    (("EnableDnsHostnames",), ("--enable-dns-hostnames",)),
    (("EnableDnsSupport", "EnableDnsHostnames"), ("--enable-dns-support", "--enable-dns-hostnames")),
])  # fmt: skip
def test_vpc_that_gives_no_names_fails_with_its_switch(
    examination: Examine, adopted: Path, off: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    attributes = {name: {"Value": name not in off} for name in ("EnableDnsSupport", "EnableDnsHostnames")}
    line = examination({**subnets(), "ec2.DescribeVpcAttribute": attributes}).line("network", VPC)
    assert line.status == ("fail" if off else "pass")
    assert [word for word in line.fix.split() if word.startswith("--enable")] == list(flags)


@pytest.mark.parametrize(("zones", "ids", "status"), [
    (("a", "b"), ("usw2-az1", "usw2-az2"), "pass"),
    (("a", "a"), ("usw2-az1", "usw2-az1"), "fail"),
    (("a", "e"), ("usw2-az1", "use1-az3"), "fail"),
])  # fmt: skip
def test_control_plane_needs_two_zones_that_take_one(
    examination: Examine, adopted: Path, zones: tuple[str, ...], ids: tuple[str, ...], status: str
) -> None:
    answers = subnets()
    rows = [
        {"SubnetId": id_, "VpcId": VPC, "AvailableIpAddressCount": 4000, "AvailabilityZone": f"{REGION}{zone}",
         "AvailabilityZoneId": zone_id}
        for id_, zone, zone_id in zip(SUBNETS, zones, ids, strict=True)
    ]  # fmt: skip
    line = examination({**answers, "ec2.DescribeSubnets": {"Subnets": rows}}).line("network", "zones of the subnets")
    assert line.status == status
    assert ("use1-az3" not in ids) or SECOND in line.message


@pytest.mark.parametrize(("answer", "status", "words"), [
    ({"addon": {"status": "ACTIVE"}}, "pass", "ACTIVE"),
    ({"addon": {"status": "DEGRADED", "health": {"issues": [{"message": "no nodes"}]}}}, "warn", "DEGRADED: no nodes"),
    (Refusal("ResourceNotFoundException"), "warn", "cluster-autoscaler gets no role"),
    (DENIED, "unknown", "eks:DescribeAddon"),
])  # fmt: skip
def test_adopted_cluster_without_the_identity_agent_is_named(
    examination: Examine, adopted_cluster: Path, answer: Answer, status: str, words: str
) -> None:
    answers = {**subnets(), **addon(""), "eks.DescribeAddon": answer}
    line = examination(answers).line("software", "eks-pod-identity-agent")
    assert (line.status, words in line.message) == (status, True)
