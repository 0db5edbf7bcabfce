"""Verdicts of compatibility, on the numbers that NVIDIA, AWS and GitHub publish."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import versions
from paddock import catalog
from paddock.catalog import cuda_match
from paddock.fleet import Fleet
from paddock.fleet import software as claims
from paddock.plan.compatibility import software
from paddock.plan.compatibility.verdict import Verdict
from paddock.plan.finding import put
from tests.support import fleets
from tests.support.fleets import changed as fleet

TODAY = date(2026, 8, 1)


def custom(driver: str) -> dict[str, Any]:
    return {"ami": {"custom": "ami-0123456789abcdef0", "driver": driver, "kubernetes": "1.35"}}


def verdicts(fleet_: Fleet, today: date = TODAY) -> dict[str, Verdict]:
    return {item.id: item for item in software.check(fleet_, today)}


# --- CUDA on drivers and GPUs


@pytest.mark.parametrize(("toolkit", "driver", "gpu", "outcome"), [
    # driver >= the one bundled with the toolkit
    ("13.0", "580.159.03", "t4", "ok"),
    ("12.8", "580.159.03", "h100", "ok"),
    # 570.26 is below 570.124.06 of update 1, as numbers: text would say otherwise
    ("12.8.1", "570.26", "h100", "minor-version"),
    # floor of the major: 525.60.13 for 12.x, 580.65.06 for 13.x
    ("13.2", "580.159.03", "t4", "minor-version"),
    ("12.9", "535.104.05", "t4", "minor-version"),
    ("12.9", "525.60.13", "t4", "minor-version"),
    ("13.4", "580.159.03", "t4", "minor-version"),
    # below it only cuda-compat, for data-centre GPUs
    ("13.0", "580.65.05", "t4", "needs-compat"),
    ("13.0", "570.124.06", "rtx-pro-6000", "unknown"),
    ("13.0", "575.57.08", "t4", "unknown"),
    ("12.7", "580.159.03", "t4", "unknown"),
    ("99.0", "580.159.03", "t4", "unknown"),
])  # fmt: skip
def test_a_toolkit_on_a_driver(toolkit: str, driver: str, gpu: str, outcome: str) -> None:
    assert cuda_match.on_driver(toolkit, driver, catalog.gpu(gpu)).outcome == outcome


@pytest.mark.parametrize(("toolkit", "gpu", "outcome"), [
    ("12.9", "v100-16gb", "ok"),
    ("12.8", "b200", "ok"),
    ("11.6", "h100", "impossible"),
    ("11.6", "a100-80gb", "ok"),
    ("11.8", "l4", "ok"),
])  # fmt: skip
def test_a_toolkit_on_a_gpu(toolkit: str, gpu: str, outcome: str) -> None:
    assert cuda_match.on_gpu(toolkit, catalog.gpu(gpu)).outcome == outcome


@pytest.mark.parametrize(("image", "cuda"), [
    ("nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04", "13.0.1"),
    ("nvidia/cuda:12.8.1-base-ubuntu22.04@sha256:" + "a" * 64, "12.8.1"),
    ("registry/runner:cuda12.8", "12.8"),
    ("registry:5000/runner:v3-cuda-12.4.1-py3", "12.4.1"),
    ("pytorch/pytorch:2.9.0-cu128", "12.8"),
    ("registry:5000/acme/runner-gpu:12.8-runner2.338.0-0123456789ab", "12.8"),
    ("registry/runner-gpu:13.0.3-runner2.338.0-0123456789ab@sha256:" + "a" * 64, "13.0.3"),
    ("registry/runner-gpu:nocuda-runner2.338.0-0123456789ab", None),
    ("registry/runner-gpu:12.8-runners", None),
    # the version of the image, not of CUDA
    ("registry/runner-gpu:13.0.1", None),
    ("registry/cuda-builder:12.3", None),
    ("registry/runner:latest", None),
    ("registry/runner@sha256:" + "a" * 64, None),
    ("registry/runner:focus128", None),
])  # fmt: skip
def test_a_tag_states_cuda_or_it_is_not_guessed(image: str, cuda: str | None) -> None:
    assert cuda_match.tag_cuda(image) == cuda


@given(st.sampled_from(list(catalog.cuda_toolkits())), st.sampled_from(["t4", "h100", "v100-16gb", "b300"]), st.data())
def test_a_newer_driver_is_never_worse(toolkit: str, gpu: str, data: st.DataObject) -> None:
    drivers = sorted({a.driver for a in catalog.eks_amis() if a.driver} | {
        driver for kit in catalog.cuda_toolkits().values() for driver in (kit.driver, *kit.updates) if driver
    }, key=catalog.version)  # fmt: skip
    older = data.draw(st.sampled_from(drivers))
    newer = data.draw(st.sampled_from(drivers[drivers.index(older) :]))
    rank = {"ok": 0, "minor-version": 1, "needs-compat": 2, "unknown": 2}
    outcomes = [cuda_match.on_driver(toolkit, driver, catalog.gpu(gpu)).outcome for driver in (older, newer)]
    assert rank[outcomes[1]] <= rank[outcomes[0]]


# --- in a fleet


def test_what_the_stack_says_of_its_image_is_what_counts() -> None:
    result = verdicts(fleet(images={"repositories": [], "runner": "registry/runner:7", "cuda": "13.0"}))
    assert (result["CMP001"].severity, result["CMP002"].severity) == (None, None)
    assert result["CMP001"].numbers["cuda_read_from"] == "images.cuda"
    assert result["CMP001"].numbers["driver"] == "580.159.03"


def test_a_driver_that_is_too_old_says_which_edit_is_cheapest() -> None:
    fleet_ = fleet(custom("570.124.06"), {"image": "nvidia/cuda:13.0.1-runtime-ubuntu24.04"})
    result = verdicts(fleet_)["CMP001"]
    assert (result.verdict, result.severity, result.subject) == ("needs-compat", "warning", "runners.gpu")
    assert "580.65.06" in result.message
    assert "tag of runners.gpu.image" in result.message
    assert result.fix.startswith('pools.t4.ami: {release: "1.35.')
    assert result.numbers["newest_cuda"] == "12.8"


def test_an_image_too_new_for_every_driver_is_the_one_to_change() -> None:
    own = {"image": "nvidia/cuda:13.2.0-runtime-ubuntu24.04"}
    assert verdicts(fleet(custom("570.124.06"), own))["CMP001"].fix.startswith("runners.gpu.image: an image with CUDA")
    unheard_of = verdicts(fleet({"ami": {"bottlerocket": "1.99.0-1e8d1a37"}}, own))["CMP001"]
    assert (unheard_of.verdict, unheard_of.subject) == ("unknown", "runners.gpu")


def test_no_image_is_named_whose_driver_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = catalog.latest_ami("1.35")
    assert newest
    monkeypatch.setattr(catalog, "latest_ami", lambda minor: replace(newest, driver="595.58.03"))
    result = verdicts(fleet({"instances": ["p3.2xlarge"]} | custom("595.58.03")))["CMP003"]
    assert (result.fix, result.edits) == ("instances of another family", ())


def test_a_v100_has_no_cuda_13() -> None:
    pool = {"instances": ["p3.2xlarge"]}
    result = verdicts(fleet(pool, {"image": "nvidia/cuda:13.0.1-runtime-ubuntu24.04"}))
    assert result["CMP002"].verdict == "impossible"
    assert result["CMP002"].fix == "runners.gpu.image: an image with CUDA 9.0 to 12.9"
    assert result["CMP003"].verdict == "ok"
    removed = verdicts(fleet(pool | custom("595.58.03")))["CMP003"]
    assert removed.verdict == "impossible"
    assert "R580 is the last driver for p3" in removed.message
    assert 'release: "1.35.' in removed.fix


def test_an_instance_that_needs_a_newer_driver_than_any_image_has() -> None:
    result = verdicts(fleet({"instances": ["g7.2xlarge"]}))["CMP003"]
    assert result.verdict == "impossible"
    assert "g7 needs driver R595 or newer, and its image has 580.159.03" in result.message
    assert verdicts(fleet({"instances": ["g7.2xlarge"]} | custom("595.58.03")))["CMP003"].verdict == "ok"
    assert verdicts(fleet({"instances": ["g6f.large"]} | custom("595.58.03")))["CMP003"].verdict == "impossible"


def test_nobody_states_cuda_and_one_finding_says_so() -> None:
    fleet_ = fleets.example("prod").fleet
    result = [item for item in software.check(fleet_, TODAY) if item.id == "CMP001"]
    assert [item.verdict for item in result] == ["unknown"]
    assert "gpu-h100-x8" in result[0].message


def test_an_image_without_cuda_is_not_one_whose_cuda_nobody_states() -> None:
    bare = "registry/runner-gpu:nocuda-runner2.338.0-0123456789ab@sha256:" + "a" * 64
    result = verdicts(fleet(images={"repositories": [], "runner": bare}))["CMP001"]
    assert (result.verdict, result.subject) == ("unknown", "images.cuda")
    assert "the image of images.runner contains no CUDA: jobs bring their own" in result.message
    own = fleet(None, {"image": bare})
    where = claims.image_cuda(own, own.runners["gpu"]).where
    assert where.startswith("the image of runners.gpu.image contains no CUDA")


def test_a_bottlerocket_image_has_the_driver_of_its_version() -> None:
    fleet_ = fleet({"ami": {"bottlerocket": "1.62.0-1e8d1a37"}})
    assert claims.driver(fleet_, fleet_.pools["t4"]).version == "580.159.03"
    assert verdicts(fleet_)["CMP006"].verdict == "unknown"
    unheard_of = fleet({"ami": {"bottlerocket": "1.99.0-1e8d1a37"}})
    assert verdicts(unheard_of)["CMP003"].verdict == "unknown"


def test_nodes_that_are_there_already_are_unknown() -> None:
    result = software.check(fleets.named("any-cluster").fleet, TODAY)
    assert not [item for item in result if item.id in {"CMP003", "CMP004", "CMP005", "CMP006", "CMP007"}]
    assert {item.verdict for item in result if item.id == "CMP001"} == {"unknown"}


# --- what ages


@pytest.mark.parametrize("support", ["standard", "extended"])
@pytest.mark.parametrize(("today", "severity", "end"), [
    (date(2026, 9, 24), None, date(2027, 3, 27)),
    (date(2026, 9, 25), "info", date(2027, 3, 27)),  # 183 days
    (date(2027, 1, 24), "info", date(2027, 3, 27)),
    (date(2027, 1, 25), "warning", date(2027, 3, 27)),  # 61 days
    (date(2027, 3, 26), "warning", date(2027, 3, 27)),
    (date(2027, 3, 27), "warning", date(2028, 3, 27)),
    (date(2028, 3, 26), "warning", date(2028, 3, 27)),
    (date(2028, 3, 27), "error", date(2028, 3, 27)),
])  # fmt: skip
def test_the_end_of_support_is_named_early(today: date, severity: str | None, end: date, support: str) -> None:
    data = {"version": "1.35", "support": support, "endpoint": {"allow": ["203.0.113.0/24"]}}
    result = verdicts(fleet(cluster=data), today)["CMP007"]
    assert result.severity == severity
    assert result.numbers["days_left"] == (end - today).days
    assert result.fix.startswith('cluster.version: "1.36"') == (severity is not None)
    assert ("ended on 2027-03-27" in result.message) == (date(2027, 3, 27) <= today < date(2028, 3, 27))
    if severity in ("info", "warning"):
        assert "$0.60 an hour instead of $0.10" in result.message
        assert ("EKS upgrades the cluster by itself" in result.message) == (support == "standard")


@pytest.mark.parametrize(("today", "then"), [
    (date(2026, 6, 1), "then on to 1.35"),  # 1.36 comes a day later
    (date(2026, 11, 23), "then on to 1.36"),  # the newest in standard support
    (date(2027, 8, 2), "then on to 1.36"),  # none is in standard support, two are not ended
    (date(2029, 1, 1), "then on to 1.36"),  # all have ended
])  # fmt: skip
def test_an_old_minor_goes_to_the_next(today: date, then: str) -> None:
    cluster = {"existing": "shared", "version": "1.33"}
    fix = verdicts(fleet(cluster=cluster, network=fleets.SAMPLES["existing-cluster"]["network"]), today)["CMP007"].fix
    assert 'cluster.version: "1.34"' in fix
    assert then in fix


def test_the_newest_minor_has_no_later_one_to_name() -> None:
    data = {"version": "1.36", "endpoint": {"allow": ["203.0.113.0/24"]}}
    result = verdicts(fleet(cluster=data), date(2028, 8, 2))["CMP007"]
    assert (result.severity, result.fix) == ("error", "./inv catalog.refresh, for a later minor")


def test_an_unknown_end_of_extended_support_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    minors = dict(catalog.eks_versions())
    minors["1.36"] = replace(minors["1.36"], end_of_extended_support=None)
    monkeypatch.setattr(catalog, "eks_versions", lambda: minors)
    data = {"version": "1.36", "endpoint": {"allow": ["203.0.113.0/24"]}}
    result = verdicts(fleet(cluster=data), date(2030, 1, 1))["CMP007"]
    assert result.severity == "warning"
    assert "extended support has no known end" in result.message


def test_a_region_without_the_price_still_says_that_it_rises() -> None:
    prices = catalog.fixed_price("eks.control-plane.extended", "eu-central-1")
    assert prices is None
    frankfurt = fleet().model_copy(update={"region": "eu-central-1"})
    assert "costs several times as much" in verdicts(frankfurt, date(2027, 4, 1))["CMP007"].message


def test_the_age_of_an_image_and_of_the_runner() -> None:
    newest = {"ami": {"release": "1.35.6-20260714"}}
    assert verdicts(fleet(newest), date(2027, 3, 1))["CMP006"].severity is None  # nobody could take a newer one
    older = {"ami": {"release": "1.35.6-20260625"}}
    assert verdicts(fleet(older), date(2026, 9, 23))["CMP006"].severity is None  # 90 days
    old = verdicts(fleet(older), date(2026, 9, 24))["CMP006"]
    assert (old.severity, old.numbers["age_days"], old.subject) == ("warning", 91, "pools.t4.ami")
    assert old.fix == 'pools.t4.ami: {release: "1.35.6-20260714"}'
    assert versions.ACTIONS_RUNNER == "2.338.0"
    assert verdicts(fleet(), date(2026, 11, 9))["CMP010"].verdict == "ok"  # looked up 2026-10-10, 30 days before
    assert verdicts(fleet(), date(2026, 11, 10))["CMP010"].verdict == "unknown"


def test_an_image_and_a_driver_of_two_pools_are_one_verdict_each() -> None:
    image = {"ami": {"release": "1.35.6-20260625"}}
    pools = {name: {"instances": ["g4dn.xlarge"], "nodes": {"max": 1}} | image for name in ("t4", "more")}
    result = verdicts(fleet(pools=pools), date(2026, 9, 24))
    assert (result["CMP004"].subject, result["CMP006"].subject) == ("pools", "pools")
    assert "of pools t4, more is 91 days old" in result["CMP006"].message
    assert [edit.key[2] for edit in result["CMP006"].edits] == ["t4", "more"]


def _in_cluster(fleet_: Fleet, minor: str) -> Fleet:
    """Return a fleet whose control plane runs another minor, unchecked."""
    return fleet_.model_copy(update={"cluster": fleet_.cluster.model_copy(update={"version": minor})})


def test_an_older_image_is_a_state_between_two_minors(monkeypatch: pytest.MonkeyPatch) -> None:
    here = fleet({"ami": {"release": "1.35.6-20260714"}})
    between = verdicts(_in_cluster(here, "1.36"))["CMP005"]
    assert (between.verdict, between.severity, between.edits) == ("ok", "warning", ())
    assert between.fix == "an image for 1.36: {release: 1.36.2-20260714}"
    assert "a pool that is new or replaced would be refused" in between.message
    own = verdicts(_in_cluster(fleet(custom("580.159.03")), "1.36"))["CMP005"]
    assert (own.severity, own.edits) == ("warning", ())
    assert own.fix.startswith("once the cluster runs 1.36, ./inv ami.build")
    ahead = verdicts(_in_cluster(fleet(custom("580.159.03")), "1.34"))["CMP005"]
    assert ahead.fix.startswith("an image for 1.31 to 1.34: ./inv ami.build makes an image for 1.34")
    newer = verdicts(_in_cluster(here, "1.34"))["CMP005"]
    assert (newer.severity, newer.edits) == (
        "error",
        (put("pools", "t4", "ami", value={"release": "1.34.9-20260714"}),),
    )
    assert (verdicts(here)["CMP005"].severity, verdicts(here)["CMP005"].edits) == (None, ())
    dated = tuple(replace(row, date=date(2026, 7, 1)) for row in catalog.eks_amis())
    monkeypatch.setattr(catalog, "eks_amis", lambda: dated)
    assert verdicts(fleet({"ami": {"bottlerocket": "1.62.0-1e8d1a37"}}))["CMP006"].numbers["age_days"] == 31


def test_an_upgrade_is_an_edit_where_its_images_follow() -> None:
    managed, own, late = fleet({"ami": {"release": "1.35.6-20260714"}}), fleet(custom("580.159.03")), date(2027, 1, 25)
    assert verdicts(managed, late)["CMP007"].edits == (
        put("cluster", "version", value="1.36"),
        put("pools", "t4", "ami", value={"release": "1.36.2-20260714"}),
    )
    assert verdicts(managed, date(2027, 1, 24))["CMP007"].edits == ()
    assert verdicts(managed, date(2027, 6, 2))["CMP007"].edits == ()  # 1.36 is as near its own end
    assert verdicts(own, late)["CMP007"].edits == ()
    assert "pools t4 keep their image, and get one for it afterwards" in verdicts(own, late)["CMP007"].fix


def test_a_bottlerocket_variant_has_the_facts_of_its_own_minor() -> None:
    older = {"ami": {"bottlerocket": "1.62.0-1e8d1a37", "kubernetes": "1.35"}}
    between = _in_cluster(fleet(older), "1.36")
    assert claims.driver(between, between.pools["t4"]) == claims.driver(fleet(older), fleet(older).pools["t4"])
    assert verdicts(between)["CMP005"].fix == "leave ami.kubernetes out of t4, for the variant of 1.36"
    assert verdicts(between)["CMP006"].numbers["image_kubernetes"] == "1.35"


def test_a_minor_is_known_from_the_day_of_its_release() -> None:
    new = fleet(cluster={"version": "1.36", "endpoint": {"allow": ["203.0.113.0/24"]}})
    assert verdicts(new, date(2026, 6, 1))["CMP007"].verdict == "unknown"
    assert verdicts(new, date(2026, 6, 2))["CMP007"].verdict == "ok"


def test_a_superseded_runner_is_served_for_30_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ACTIONS_RUNNER", "2.335.1")
    assert verdicts(fleet(), date(2026, 8, 19))["CMP010"].severity == "warning"
    assert verdicts(fleet(), date(2026, 8, 20))["CMP010"].severity == "error"


def test_a_driver_branch_near_its_end() -> None:
    assert verdicts(fleet(custom("570.124.06")))["CMP004"].severity == "warning"  # 2026-02
    lasting = fleet(custom("580.159.03"))  # until 2028-06-30
    assert verdicts(lasting, date(2028, 4, 1))["CMP004"].severity is None
    ending = verdicts(lasting, date(2028, 4, 2))["CMP004"]
    assert (ending.severity, ending.subject, bool(ending.fix)) == ("warning", "pools.t4", True)
    assert verdicts(fleet(custom("590.48.01")))["CMP004"].verdict == "unknown"


@pytest.mark.parametrize(("server", "verdict", "severity"), [
    ("3.17", "impossible", "error"),
    ("3.18", "ok", "warning"),  # behind a flag
    ("3.19", "ok", "warning"),  # and reported broken with ARC 0.14
    ("3.21", "ok", None),
])  # fmt: skip
def test_labels_on_github_enterprise_server(server: str, verdict: str, severity: str | None) -> None:
    github = {"url": "https://git.acme.example/acme", "token": "config", "serverVersion": server}
    result = verdicts(fleet(github=github))["CMP009"]
    assert (result.verdict, result.severity) == (verdict, severity)
    if server == "3.19":
        assert "arc-4443" in result.message
    hosted = fleet(github=github | {"url": "https://github.com/acme"})
    assert "CMP009" not in verdicts(hosted)


def test_an_arc_without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "ARC", "0.13.1")
    assert verdicts(fleet())["CMP008"].verdict == "impossible"


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_the_examples_have_no_error(name: str) -> None:
    result = software.findings(software.check(fleets.example(name).fleet, date(2026, 11, 21)))
    assert [finding for finding in result if finding.severity == "error"] == []
    assert all(finding.fix for finding in result)


@pytest.mark.parametrize("name", fleets.ALL)
def test_every_verdict_says_what_it_rests_on(name: str) -> None:
    for item in software.check(fleets.named(name).fleet, TODAY):
        assert item.numbers
        assert item.message
