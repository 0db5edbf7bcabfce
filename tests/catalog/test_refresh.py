"""Refresh: AWS's answers are merged, what they lack is kept and named, what fails leaves the files alone."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta, timezone

import boto3
import moto
import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.stub import ANY, Stubber
from moto.ec2.models.instance_types import InstanceTypeBackend

from paddock.catalog import _data, eks_addons
from paddock.catalog.refresh import merge
from paddock.catalog.refresh.aws import SOURCES, RefreshError, refresh, refresh_main

TODAY = date(2026, 12, 24)
REGIONS = ["us-east-1", "us-west-2"]


@pytest.fixture(autouse=True)
def no_credentials_of_ours(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the data whose prices are of two regions, so that a refresh of both is one of all."""
    copied = shutil.copytree(_data.DATA, tmp_path / "data")
    prices = _data.document("instance_prices.json", copied)
    kept = [row for row in prices["rows"] if row["region"] in REGIONS]
    _data.write("instance_prices.json", prices | {"rows": kept}, copied)
    return copied


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def row(folder, file, **keys):
    return next(row for row in _data.document(file, folder)["rows"] if keys.items() <= row.items())


class Aws:
    """Clients whose answers are queued; a queued exception is raised by the call."""

    def __init__(self):
        self.clients = {}
        self.stubs = {}

    def answer(self, service, method, response, params=None, region="us-east-1"):
        self.stub(service, region).add_response(method, response, params)
        return self

    def refuse(self, service, method, code, region="us-east-1"):
        self.stub(service, region).add_client_error(method, code, "no")
        return self

    def stub(self, service, region):
        if (service, region) not in self.stubs:
            client = boto3.client(service, region_name=region)
            self.clients[service, region] = client
            self.stubs[service, region] = Stubber(client)
            self.stubs[service, region].activate()
        return self.stubs[service, region]

    def __call__(self, service, region):
        return self.clients[service, region]


def product(name, usd):
    term = {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": usd}}}}
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": {"OnDemand": {"t": term}}})


def spot(name, zone, usd, at=0):
    moment = datetime(2026, 12, 24, at, tzinfo=UTC)
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": moment}


def test_refresh_corrects_hardware_and_nothing_else(folder, monkeypatch):
    """Against the types that the catalogue holds and a few others: moto takes a second for each hundred."""
    content = _data.document("instances.json", folder)
    names = {row["name"] for row in content["rows"]}
    held = [row for row in InstanceTypeBackend.instance_types if row.name in names]
    others = [row for row in InstanceTypeBackend.instance_types if row.name not in names]
    monkeypatch.setattr(InstanceTypeBackend, "instance_types", [*others[:9], *held])
    wrong = next(row for row in content["rows"] if row["name"] == "g6f.large")
    right = dict(wrong)
    wrong |= {"enis": 99, "gpu": "t4"}  # the key of the GPU is ours: EC2 does not know it
    _data.write("instances.json", content, folder)
    with moto.mock_aws():
        (report,) = refresh(boto3.client, TODAY, ["us-east-1"], ["hardware"], folder)
    assert report.failed is None
    assert report.changed == ("g6f.large enis 99 -> 2",)
    assert {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"} <= set(report.kept)
    wrong |= {"enis": right["enis"]}
    refreshed = _data.document("instances.json", folder)
    assert (right["enis"], refreshed["rows"]) == (2, content["rows"])
    assert refreshed["as_of"] == "2026-12-24"


def test_on_demand_prices_are_merged_and_absent_ones_kept(folder):
    east, west = (row(folder, "instance_prices.json", type="g5.xlarge", region=region) for region in REGIONS)
    aws = Aws()
    for usd in ("1.5", "1.6"):
        for listed in ([product("g5.xlarge", usd), product("g5.2xlarge", "0")], []):
            aws.answer(
                "pricing",
                "get_products",
                {"PriceList": listed},
                {"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "Filters": ANY},
            )
    (report,) = refresh(aws, TODAY, REGIONS, ["on-demand"], folder)
    assert report.changed == (
        f"g5.xlarge us-east-1 on_demand {east['on_demand']} -> 1.5",
        f"g5.xlarge us-west-2 on_demand {west['on_demand']} -> 1.6",
    )
    assert "g5.2xlarge us-east-1 on_demand" in report.kept  # a price of 0 is no price
    new = row(folder, "instance_prices.json", type="g5.xlarge", region="us-west-2")
    assert new == west | {"on_demand": 1.6, "on_demand_source": "ec2-pricing"}
    content = _data.document("instance_prices.json", folder)
    assert content["as_of"] == "2026-12-24"
    assert "ec2-pricing" in {source["key"] for source in content["sources"]}


def test_one_region_of_two_does_not_make_the_price_file_new(folder):
    aws = Aws()
    for listed in ([product("g5.xlarge", "1.5")], []):
        aws.answer("pricing", "get_products", {"PriceList": listed})
    refresh(aws, TODAY, ["us-east-1"], ["on-demand"], folder)
    assert _data.document("instance_prices.json", folder)["as_of"] == _data.document("instance_prices.json")["as_of"]


def usage(usagetype, usd, unit):
    term = {"priceDimensions": {"d": {"unit": unit, "beginRange": "0", "pricePerUnit": {"USD": usd}}}}
    return json.dumps({"product": {"attributes": {"usagetype": usagetype}}, "terms": {"OnDemand": {"t": term}}})


def test_fixed_prices_are_read_for_regions_with_and_without_rows(folder):
    aws = Aws()
    for listed in (
        [usage("MXC1-AmazonEKS-Hours:perCluster", "0.1", "Hours")],
        [usage("MXC1-NatGateway-Hours", "0.047", "Hrs"), usage("MXC1-NatGateway-Prvd-Bytes", "9", "GB")],
        [usage("MXC1-EBS:VolumeP-Throughput.gp3", "43.008", "GiBps-mo")],
        [],
    ):
        aws.answer("pricing", "get_products", {"PriceList": listed})
    (report,) = refresh(aws, TODAY, ["mx-central-1"], ["fixed"], folder)
    assert report.changed == (
        "eks.control-plane mx-central-1 no price -> 0.1",
        "vpc.nat-gateway mx-central-1 no price -> 0.047",
        "ebs.gp3.throughput mx-central-1 no price -> 0.042",
    )
    new = row(folder, "fixed_prices.json", key="vpc.nat-gateway", region="mx-central-1")
    assert (new["unit"], new["source"], new["as_of"]) == ("USD/hour", "ec2-pricing", TODAY.isoformat())
    old = row(folder, "fixed_prices.json", key="vpc.nat-gateway", region="us-west-2")
    assert old["source"] == "price-list"


def test_spot_is_the_median_of_the_latest_price_of_each_zone(folder):
    history = [
        spot("g5.xlarge", "a", "9.9", at=1),
        spot("g5.xlarge", "a", "0.3", at=2),
        spot("g5.xlarge", "b", "0.4"),
        spot("g5.xlarge", "c", "0.9"),
        spot("c5.large", "a", "0.1"),
    ]
    old = row(folder, "instance_prices.json", type="g5.xlarge", region="us-east-1")
    aws = Aws().answer("ec2", "describe_spot_price_history", {"SpotPriceHistory": history, "NextToken": ""})
    (report,) = refresh(aws, TODAY, ["us-east-1"], ["spot"], folder)
    assert report.changed == (f"g5.xlarge us-east-1 spot {old['spot']} -> 0.4",)
    new = row(folder, "instance_prices.json", type="g5.xlarge", region="us-east-1")
    assert new == old | {"spot": 0.4, "spot_source": "ec2"}


def test_a_region_new_to_the_file_gets_rows_beside_the_others(folder):
    aws = Aws()
    history = {"SpotPriceHistory": [spot("g5.xlarge", "a", "0.7")]}
    aws.answer("ec2", "describe_spot_price_history", history, region="eu-west-1")
    refresh(aws, TODAY, ["eu-west-1"], ["spot"], folder)
    rows = [row for row in _data.document("instance_prices.json", folder)["rows"] if row["type"] == "g5.xlarge"]
    assert [row["region"] for row in rows] == ["eu-west-1", "us-east-1", "us-west-2"]
    assert rows[0]["on_demand"] is None


def test_eks_versions_are_dated_in_utc_and_new_ones_added(folder):
    seattle = timezone(timedelta(hours=-8))
    versions = [
        {
            "clusterVersion": name,
            "releaseDate": datetime(2026, 1, 27, 16, tzinfo=seattle),
            "endOfStandardSupportDate": datetime(2027, 3, 26, 16, tzinfo=seattle),
            "endOfExtendedSupportDate": datetime(2028, 3, 26, 16, tzinfo=seattle),
        }
        for name in ("1.40", "1.35")
    ]
    aws = Aws().answer("eks", "describe_cluster_versions", {"clusterVersions": versions})
    (report,) = refresh(aws, TODAY, REGIONS, ["eks-versions"], folder)
    assert report.changed == ("1.40 added",)
    assert "1.30" in report.kept
    assert row(folder, "eks_versions.json", version="1.40")["end_of_standard_support"] == "2027-03-27"
    assert _data.document("eks_versions.json", folder)["rows"][-1]["version"] == "1.40"


def addon(name, *offered):
    versions = [
        {"addonVersion": version, "compatibilities": [{"clusterVersion": minor} for minor in minors]}
        for version, *minors in offered
    ]
    return {"addons": [{"addonName": name, "addonVersions": versions}]}


def test_the_newest_build_of_an_addon_is_read_by_minor(folder):
    aws, names = Aws(), sorted(eks_addons()["1.36"])
    for name in names:
        offered = [
            ("v9.0.0-eksbuild.3", "1.20", "1.36", "1.99"),
            ("v9.0.0-eksbuild.11", "1.36", "1.99"),
            ("v9", "1.36"),
        ]
        if name == "coredns":
            offered.append(("v9.1.0-eksbuild.1", "1.98"))  # the others are not offered there: not yet a minor
        aws.answer("eks", "describe_addon_versions", addon(name, *offered), {"addonName": name})
    (report,) = refresh(aws, TODAY, REGIONS, ["eks-addons"], folder)
    old = eks_addons()["1.36"]["coredns"]
    assert f"1.36 coredns version {old} -> v9.0.0-eksbuild.11" in report.changed
    assert "1.99 coredns added" in report.changed
    assert f"1.35 {names[0]}" in report.kept
    held = {(row["kubernetes"], row["source"]) for row in _data.document("eks_addons.json", folder)["rows"]}
    assert {("1.36", "eks"), ("1.99", "eks")} <= held
    assert not {"1.20", "1.98"} & {minor for minor, _ in held}


def test_a_quota_unknown_in_the_region_is_kept(folder):
    aws = Aws()
    for number, held in enumerate(_data.document("quotas.json", folder)["rows"]):
        if held["code"] == "L-C4BD4855":
            aws.refuse("service-quotas", "get_aws_default_service_quota", "NoSuchResourceException")
        else:
            value = 64.0 if number == 0 else held["default"]
            aws.answer("service-quotas", "get_aws_default_service_quota", {"Quota": {"Value": value}})
    (report,) = refresh(aws, TODAY, REGIONS, ["quotas"], folder)
    assert report.changed == ("L-DB2E81BA default 0 -> 64.0",)
    assert report.kept == ("L-C4BD4855",)


def test_a_recommended_image_is_added_newest_first_without_guessing_its_driver(folder):
    first, second, *rest = dict.fromkeys(row["kubernetes"] for row in _data.document("eks_amis.json", folder)["rows"])
    known = row(folder, "eks_amis.json", kubernetes=first)["release"]
    aws = Aws()
    for release in (known, f"{second}.9-20991201"):
        aws.answer("ssm", "get_parameter", {"Parameter": {"Value": release}}, {"Name": ANY})
    for _ in [*rest, "the minor after the newest"]:
        aws.refuse("ssm", "get_parameter", "ParameterNotFound")
    (report,) = refresh(aws, TODAY, REGIONS, ["amis"], folder)
    assert report.changed == (f"al2023 {second} {second}.9-20991201 added",)
    assert report.kept == tuple(f"{minor} recommended release" for minor in rest)
    newest = row(folder, "eks_amis.json", kubernetes=second)
    assert (newest["release"], newest["date"], newest["driver"]) == (f"{second}.9-20991201", "2099-12-01", None)


@pytest.mark.parametrize(("code", "advice"), [
    ("AccessDeniedException", "allow eks:DescribeClusterVersions"),
    ("ExpiredTokenException", "sign in again"),
    ("ThrottlingException", "run it again in a minute"),
])  # fmt: skip
def test_a_refused_source_says_what_to_do_and_leaves_its_file(folder, code, advice):
    before = contents(folder)
    aws = Aws().refuse("eks", "describe_cluster_versions", code)
    (report,) = refresh(aws, TODAY, REGIONS, ["eks-versions"], folder)
    assert advice in report.failed
    assert contents(folder) == before


@pytest.mark.parametrize(("error", "advice"), [
    (NoCredentialsError(), "aws sso login"),
    (EndpointConnectionError(endpoint_url="https://eks"), "look at the network"),
])  # fmt: skip
def test_an_unreachable_aws_fails_every_source_and_no_file_changes(folder, error, advice):
    def clients(service, region):
        raise error

    before = contents(folder)
    reports = refresh(clients, TODAY, REGIONS, folder=folder)
    assert [report.source for report in reports] == list(SOURCES)
    assert all(advice in report.failed for report in reports)
    assert contents(folder) == before


def test_one_failure_does_not_stop_the_others(folder):
    history = {"SpotPriceHistory": [spot("g5.xlarge", "a", "0.7")]}
    aws = Aws().refuse("pricing", "get_products", "AccessDeniedException")
    aws.answer("ec2", "describe_spot_price_history", history)
    old = row(folder, "instance_prices.json", type="g5.xlarge", region="us-east-1")
    on_demand, spots = refresh(aws, TODAY, ["us-east-1"], ["on-demand", "spot"], folder)
    assert on_demand.failed
    assert spots.failed is None
    new = row(folder, "instance_prices.json", type="g5.xlarge", region="us-east-1")
    assert (new["on_demand"], new["spot"]) == (old["on_demand"], 0.7)


def test_an_empty_answer_is_a_failure_not_a_new_date(folder):
    before = contents(folder)
    aws = Aws().answer("eks", "describe_cluster_versions", {"clusterVersions": []})
    aws.answer("pricing", "get_products", {"PriceList": ["{}"]})
    aws.answer("pricing", "get_products", {"PriceList": []})
    empty, strange = refresh(aws, TODAY, ["us-east-1"], ["eks-versions", "on-demand"], folder)
    assert "nothing" in empty.failed
    assert "form" in strange.failed
    assert contents(folder) == before


def test_a_dry_run_reports_and_writes_nothing(folder):
    before = contents(folder)
    aws = Aws().answer(
        "ec2", "describe_spot_price_history", {"SpotPriceHistory": [spot("g5.xlarge", "a", "0.7")]}
    )  # fmt: skip
    (report,) = refresh(aws, TODAY, ["us-east-1"], ["spot"], folder, write=False)
    assert report.changed
    assert contents(folder) == before


def test_a_broken_write_leaves_the_old_file_and_no_rubbish(folder):
    before = contents(folder)
    with pytest.raises(TypeError):
        _data.write("quotas.json", {"schema": 1, "bad": object()}, folder)
    assert contents(folder) == before


def test_a_source_that_does_not_exist_is_the_callers_mistake(folder):
    with pytest.raises(ValueError, match="hardware, on-demand, spot"):
        refresh(Aws(), TODAY, REGIONS, ["prices"], folder)
    with pytest.raises(ValueError, match="regions at least one"):
        refresh(Aws(), TODAY, [], folder=folder)


def test_without_credentials_nothing_is_written(folder, monkeypatch):
    before = contents(folder)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(folder / "none"))
    with pytest.raises(RefreshError, match="no credentials for AWS"):
        refresh_main(path=folder, region="us-east-1")
    assert contents(folder) == before


def test_merging_the_same_answer_twice_changes_nothing_the_second_time():
    rows = _data.rows("instance_prices.json")
    once = merge.on_demand_rows(rows, {"g5.xlarge": 2.0}, "us-east-1")
    twice = merge.on_demand_rows(once.rows, {"g5.xlarge": 2.0}, "us-east-1")
    assert once.changed
    assert twice.changed == ()
    assert twice.rows == once.rows
