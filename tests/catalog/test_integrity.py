"""The data files hold together: complete, cited, within the bounds of the thing they describe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import catalog
from paddock.catalog import _data
from paddock.catalog.gpus import pcie_limit
from paddock.fleet import NewCluster
from tests.support.explore import examples

FILES = sorted(path.name for path in _data.DATA.glob("*.json"))
GPU_FAMILIES = [
    "g4dn", "g5", "g6", "gr6", "g6e", "g6f", "gr6f", "g7", "g7e", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200",
    "p6-b300",
]  # fmt: skip
SYSTEM_TYPES = [
    "t3.medium", "t3.large", "t3.xlarge", "m6i.large", "m6i.xlarge", "m6i.2xlarge", "m7i.large", "m7i.xlarge",
    "m7i.2xlarge",
]  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict]:
    """DescribeInstanceTypes of every type, as moto recorded it from EC2."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return INSTANCE_TYPES


@pytest.mark.parametrize("file", FILES)
def test_rewriting_a_data_file_changes_no_byte(file):
    text = (_data.DATA / file).read_text()
    assert _data.render(_data.document(file)) == text
    for line in text.splitlines():
        if line.startswith("    "):
            json.loads(line.rstrip(","))


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_dated_in_the_past_and_cites_public_sources(file):
    stamp = next(stamp for stamp in catalog.stamps() if stamp.file == file)
    tomorrow = datetime.now(UTC).date() + timedelta(
        days=1
    )  # of the machine: a refresh is of a later day than the tests
    assert date(2025, 1, 1) < stamp.as_of <= tomorrow
    assert stamp.max_age_days > 0
    assert stamp.sources
    assert len({source.key for source in stamp.sources}) == len(stamp.sources)
    for source in stamp.sources:
        assert source.url.startswith("https://")
        assert source.as_of is None or source.as_of <= tomorrow


def test_system_nodes_have_a_price_wherever_gpus_have():
    """Where they have none, no month of a fleet has a total. Named here: regions that no source we read covers."""
    rows = [row for row in _data.rows("instance_prices.json") if row["on_demand"] is not None]
    gpus = {row["region"] for row in rows if catalog.instance(row["type"]).gpu}
    system = {row["region"] for row in rows if row["type"] == NewCluster().system.instances[0]}
    uncovered = {
        "af-south-1",
        "ap-south-2",
        "ap-southeast-5",
        "eu-central-2",
        "il-central-1",
        "me-south-1",
        "sa-east-1",
    }
    assert gpus - system == uncovered


@pytest.mark.parametrize(("file", "columns"), [
    ("instance_prices.json", ("on_demand", "spot")),
    ("fixed_prices.json", ("",)),
])  # fmt: skip
def test_a_price_has_a_source_that_the_file_names(file, columns):
    content = _data.document(file)
    keys = {source["key"] for source in content["sources"]}
    for row in content["rows"]:
        for column in columns:
            source = row[f"{column}_source" if column else "source"]
            value = row[column or "value"]
            assert (value is None) == (source is None), row
            assert source is None or source in keys, row


def test_gpu_instances_agree_with_ec2(recorded):
    described = {name for name in recorded if name.split(".")[0] in GPU_FAMILIES} | set(SYSTEM_TYPES)
    retired = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}
    assert described | retired | {"m7i-flex.large"} == set(catalog.instances())
    for name in sorted(described):
        instance, theirs = catalog.instance(name), recorded[name]
        assert instance.vcpus == theirs["VCpuInfo"]["DefaultVCpus"]
        assert instance.memory_mib == theirs["MemoryInfo"]["SizeInMiB"]
        assert instance.nvme_total_gb == theirs.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)
        assert instance.bare_metal == theirs["BareMetal"]
        for gpu in theirs.get("GpuInfo", {}).get("Gpus", []):
            assert catalog.gpu(instance.gpu).ec2_name == gpu["Name"]
            assert instance.gpu_memory_mib == gpu["MemoryInfo"]["SizeInMiB"]
            assert instance.api_gpu_count == gpu["Count"]


def test_a_price_row_names_a_type_once_a_region():
    rows = [(row["type"], row["region"]) for row in _data.rows("instance_prices.json")]
    assert len(set(rows)) == len(rows)
    assert {name for name, _ in rows} == set(catalog.instances())


@pytest.mark.parametrize("name", list(catalog.instances()))
def test_an_instance_type_keeps_the_invariants(name):
    instance = catalog.instance(name)
    assert (instance.gpu is None) == (instance.gpu_count == 0)
    assert instance.api_gpu_count == (instance.gpu_count if instance.gpu_fraction == 1 else 0)
    assert instance.max_pods == instance.enis * (instance.ipv4_per_eni - 1) + 2
    assert instance.bare_metal == name.endswith("metal")
    assert instance.arch == "x86_64"
    for price in instance.prices.values():
        assert price.on_demand is None or price.on_demand > 0
        assert price.spot is None or price.spot > 0
        if price.on_demand and price.spot:
            assert price.spot <= price.on_demand
        assert price.interruption_band in (None, 0, 1, 2, 3, 4)


def test_a_larger_machine_of_a_family_costs_no_less():
    for machine in catalog.gpu_instances():
        for other in catalog.gpu_instances(machine.gpu):
            if machine.family == other.family and machine.gpu_count <= other.gpu_count and machine.vcpus <= other.vcpus:
                prices = [kind.price("us-east-1").on_demand for kind in (machine, other)]
                if machine.gpu_fraction <= other.gpu_fraction and None not in prices:
                    assert prices[0] <= prices[1], (machine.name, other.name)


# Typed by hand, not read from our files: a refresh that moves one of these prices deserves a look.
# name: GPU, count, vCPU, GiB, NVMe GB, on-demand USD/h us-east-1, pods
PUBLISHED = {
    "g4dn.xlarge": ("t4", 1, 4, 16, 125, 0.526, 29),
    "g4dn.8xlarge": ("t4", 1, 32, 128, 900, 2.176, 58),
    "g4dn.12xlarge": ("t4", 4, 48, 192, 900, 3.912, 234),
    "g4dn.16xlarge": ("t4", 1, 64, 256, 900, 4.352, 58),
    "g4dn.metal": ("t4", 8, 96, 384, 1800, 7.824, 737),
    "g5.xlarge": ("a10g", 1, 4, 16, 250, 1.006, 58),
    "g5.12xlarge": ("a10g", 4, 48, 192, 3800, 5.672, 737),
    "g5.48xlarge": ("a10g", 8, 192, 768, 7600, 16.288, 345),
    "g6.xlarge": ("l4", 1, 4, 16, 250, 0.8048, 58),
    "g6.16xlarge": ("l4", 1, 64, 256, 1880, 3.3968, 737),
    "g6.24xlarge": ("l4", 4, 96, 384, 3760, 6.6752, 737),
    "gr6.4xlarge": ("l4", 1, 16, 128, 600, 1.5392, 234),
    "g6e.xlarge": ("l40s", 1, 4, 32, 250, 1.861, 58),
    "g6e.12xlarge": ("l40s", 4, 48, 384, 3800, 10.49264, 292),
    "g6e.48xlarge": ("l40s", 8, 192, 1536, 7600, 30.13118, 492),
    "g6f.large": ("l4", 1, 2, 8, 100, 0.202, 20),
    "g7e.2xlarge": ("rtx-pro-6000", 1, 8, 64, 1900, 3.36312, 254),
    "g7e.48xlarge": ("rtx-pro-6000", 8, 192, 2048, 15200, 33.14432, 632),
    "p3.2xlarge": ("v100-16gb", 1, 8, 61, 0, 3.06, 58),
    "p3dn.24xlarge": ("v100-32gb", 8, 96, 768, 1800, 31.212, 737),
    "p4d.24xlarge": ("a100-40gb", 8, 96, 1152, 8000, 21.957642, 737),
    "p4de.24xlarge": ("a100-80gb", 8, 96, 1152, 8000, 27.44705, 737),
    "p5.4xlarge": ("h100", 1, 16, 256, 3800, 6.88, 118),
    "p5.48xlarge": ("h100", 8, 192, 2048, 30400, 55.04, 100),
    "p5e.48xlarge": ("h200", 8, 192, 2048, 30400, None, 100),
    "p5en.48xlarge": ("h200", 8, 192, 2048, 30400, 63.296, 198),
    "p6-b200.48xlarge": ("b200", 8, 192, 2048, 30400, 113.9328, 198),
    "p6-b300.48xlarge": ("b300", 8, 192, 4096, 30400, 142.416, 198),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_types_read_as_published(name):
    kind = catalog.instance(name)
    price = kind.price("us-east-1").on_demand
    memory = kind.memory_mib // 1024
    assert PUBLISHED[name] == (
        kind.gpu, kind.gpu_count, kind.vcpus, memory, kind.nvme_total_gb, price, kind.max_pods,
    )  # fmt: skip


def test_an_unknown_region_is_unpriced_not_an_error():
    assert catalog.instance("g5.xlarge").price("mars-north-1").on_demand is None


def test_a_wrong_name_suggests_the_right_one():
    with pytest.raises(catalog.UnknownInstanceType, match=r"did you mean g4dn\.xlarge") as caught:
        catalog.instance("g4nd.xlarge")
    assert isinstance(caught.value, KeyError)
    assert caught.value.suggestions[0] == "g4dn.xlarge"


@pytest.mark.parametrize("key", list(catalog.gpus()))
def test_a_gpu_keeps_the_invariants(key):
    gpu = catalog.gpu(key)
    assert any(kind.gpu == key for kind in catalog.gpu_instances())
    assert not set(gpu.tflops) & set(gpu.unsupported)
    assert gpu.runs_cuda(gpu.cuda_first)
    assert (gpu.supports("bf16") is False) == (catalog.version(gpu.compute_capability) < (8,))
    assert gpu.accelerator_label == gpu.accelerator_label.lower()
    slices = max((profile.compute_slices for profile in gpu.mig), default=0)
    for profile in gpu.mig:
        assert profile.compute_slices * profile.max_instances <= slices
        assert profile.memory_gib * profile.max_instances * 1024 <= gpu.memory_mib * 1.03
        assert profile.name == f"{profile.compute_slices}g.{profile.memory_gib}gb"
    if gpu.mig:
        assert gpu.mig[-1].max_instances == 1
        assert gpu.mig[0].max_instances == slices


def test_cuda_drivers_rise_with_the_toolkit():
    toolkits = list(catalog.cuda_toolkits().values())
    drivers = [[kit.driver, *kit.updates] for kit in toolkits if kit.driver]
    flat = [catalog.version(driver) for bundle in drivers for driver in bundle]
    assert flat == sorted(flat)
    assert [catalog.version(kit.version) for kit in toolkits] == sorted(catalog.version(k.version) for k in toolkits)
    for kit in toolkits:
        assert kit.driver is None or catalog.version(kit.driver) >= catalog.version(kit.minimum_driver)
    assert catalog.cuda_toolkit("12.4.1").version == "12.4"


def test_a_driver_branch_speaks_the_cuda_whose_toolkit_bundled_it():
    for kit in catalog.cuda_toolkits().values():
        branch = catalog.driver_branch(kit.driver) if kit.driver else None
        assert branch is None or branch.max_cuda == kit.version


def test_every_image_carries_a_driver_branch_we_know():
    for ami in catalog.eks_amis():
        assert ami.kubernetes in catalog.eks_versions()
        assert ami.driver is None or catalog.driver_branch(ami.driver)
        if ami.os == "al2023" and ami.date:
            assert ami.release.startswith(f"{ami.kubernetes}.")
            assert ami.release.endswith(f"{ami.date:%Y%m%d}")
            assert ami.tag == f"v{ami.date:%Y%m%d}"
    newest = catalog.latest_ami("1.35")
    assert newest.date == max(ami.date for ami in catalog.eks_amis() if ami.os == "al2023" and ami.kubernetes == "1.35")
    assert catalog.version(catalog.latest_ami("1.35", "bottlerocket").driver) >= (580, 178, 4)
    assert catalog.latest_ami("1.12") is None


def test_eks_support_ends_in_order_and_each_day_has_one_answer():
    versions = list(catalog.eks_versions().values())
    for version in versions:
        assert version.released < version.end_of_standard_support
        assert (
            version.end_of_extended_support is None or version.end_of_standard_support < version.end_of_extended_support
        )
    for older, newer in pairwise(versions):
        assert older.released < newer.released
        assert older.end_of_standard_support < newer.end_of_standard_support


def test_a_minor_has_a_version_of_every_addon():
    addons = catalog.eks_addons()
    assert set(addons) <= set(catalog.eks_versions())
    assert len({frozenset(versions) for versions in addons.values()}) == 1
    for minor, versions in addons.items():
        assert versions["kube-proxy"].startswith(f"v{minor}.")
        assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version) for version in versions.values())


def test_every_gpu_family_has_its_quotas():
    families = {kind.family for kind in catalog.instances().values()}
    assert all(catalog.quota_for(family, "on-demand") for family in families)
    assert {family for family in families if not catalog.quota_for(family, "spot")} == {"p6-b200", "p6-b300"}
    assert catalog.quota_for("p5", "spot").code == "L-C4BD4855"
    assert catalog.quota_for("p4d", "spot").code == "L-7212CCBC"


def test_a_fixed_price_is_of_its_region_or_of_everywhere():
    assert catalog.fixed_price("eks.control-plane", "us-west-2").value == 0.10
    assert catalog.fixed_price("github.runner.linux-4-core-gpu", "us-west-2").value == 0.052
    assert catalog.fixed_price("kms.key", "us-west-2").value == 1.0
    assert catalog.fixed_price("ebs.snapshot", "us-west-2") is None
    with pytest.raises(catalog.UnknownPrice, match=r"did you mean kms\.key"):
        catalog.fixed_price("kms.keys", "us-east-1")


@examples(25, 200)
@given(st.dates(min_value=date(2026, 1, 1), max_value=date(2100, 1, 1)), st.integers(min_value=0, max_value=2000))
def test_a_file_is_stale_once_older_than_its_limit(today, limit):
    assert {stamp.file for stamp in catalog.stale(today, limit)} == {
        stamp.file for stamp in catalog.stamps() if stamp.age_days(today) > limit
    }


def test_each_file_has_its_own_limit():
    stamp = next(stamp for stamp in catalog.stamps() if stamp.file == "instance_prices.json")
    last = stamp.as_of + timedelta(days=stamp.max_age_days)
    assert stamp not in catalog.stale(last)
    assert stamp in catalog.stale(last + timedelta(days=1))


def test_loading_needs_neither_aws_nor_pydantic_and_is_quick():
    program = """
import sys, time
import paddock.catalog as catalog
start = time.process_time()
catalog.instances()
print((time.process_time() - start) * 1000)
print(sorted({"boto3", "botocore", "pydantic", "pulumi", "paddock.catalog.refresh.aws"} & set(sys.modules)))
"""
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True).stdout
    spent, loaded = run.splitlines()
    assert loaded == "[]"
    assert float(spent) < 100  # a few, on a machine with nothing else to do


@pytest.mark.parametrize("generation", [3, 4, 5])
def test_eight_lanes_are_held_against_half_of_what_sixteen_are(generation):
    half, whole = (pcie_limit(generation, lanes) for lanes in (8, 16))
    assert half is not None
    assert whole is not None
    assert (half.warn, half.fail) == (whole.warn // 2, whole.fail // 2)


def test_a_link_without_a_source_has_no_limit():
    assert pcie_limit(6, 16) is None
    assert pcie_limit(None, None) is None
