"""Known faults of versions in a plan: what a release breaks, what it is too old for, and which to take instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from paddock import catalog
from paddock.plan.compatibility import faults
from paddock.tasks import program
from tests.support import fleets
from tests.support.fleets import changed as fleet

Findings = dict[str, dict[str, Any]]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the findings of `inv plan` by id, for a stack file with one pool."""

    def plan(pool: dict[str, Any], **more: Any) -> Findings:
        pool = {"instances": ["g4dn.xlarge", "g4dn.2xlarge"], "nodes": {"max": 3}, **pool}
        stack = {
            "github": {"url": "https://github.com/octo", "app": {"id": "1", "installation": "2"}},
            "cluster": {"version": "1.35", "endpoint": {"allow": ["198.51.100.0/24"]}},
            "pools": {"small": pool},
            "runners": {"gpu": {"pool": "small"}},
            **more,
        }
        (tmp_path / "Pulumi.yaml").write_text((fleets.ROOT / "Pulumi.yaml").read_text())
        config = {"config": {"aws:region": "eu-central-1", "paddock:fleet": stack}}
        (tmp_path / "Pulumi.try.yaml").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("PADDOCK_ROOT", str(tmp_path))
        monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
        program.main(["inv", "plan", "--stack", "try", "--json"])
        document = json.loads(capsys.readouterr().out)
        return {finding["id"]: finding for finding in document["findings"]}

    return plan


def test_a_release_that_breaks_fast_pulls_is_an_error_with_its_neighbours(planned: Any) -> None:
    found = planned({"ami": {"release": "1.35.4-20260505"}})["CMP011"]
    assert (found["severity"], found["subject"]) == ("error", "pools.small.ami")
    assert "nodes stay NotReady" in found["message"]
    assert "amazon-eks-ami/issues/2712" in found["message"]
    assert found["fix"] == (
        'pools.small.ami: {release: "1.35.4-20260423"} or pools.small.ami: {release: "1.35.5-20260610"}'
    )
    assert found["edits"][0]["value"] == {"release": "1.35.5-20260610"}


@pytest.mark.parametrize("release", ["1.35.4-20260423", "1.35.5-20260610", "1.35.6-20260714"])
def test_the_releases_around_it_have_no_known_fault(planned: Any, release: str) -> None:
    assert not {"CMP011", "CMP012"} & set(planned({"ami": {"release": release}}))


@pytest.mark.parametrize(("minor", "release", "before"), [
    ("1.33", "1.33.11-20260505", "1.33.11-20260423"), ("1.34", "1.34.7-20260520", "1.34.7-20260423"),
])  # fmt: skip
def test_another_minor_and_a_release_of_no_catalogue_are_known_too(
    planned: Any, minor: str, release: str, before: str
) -> None:
    found = planned({"ami": {"release": release}}, cluster={"version": minor})["CMP011"]
    assert found["severity"] == "error"
    assert before in found["fix"]


def test_without_the_setting_that_breaks_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet_ = fleet({"ami": {"release": "1.35.4-20260505"}})
    assert [item.id for item in faults.check(fleet_)] == ["CMP011"]
    monkeypatch.setattr(faults.user_data, "settings", lambda pool, on_bottlerocket: frozenset({"raid0"}))
    assert not list(faults.check(fleet_))


@pytest.mark.parametrize(("release", "settings", "worst"), [
    ("1.33.5-20250819", {"fast-image-pull", "max-pods-expression", "images-on-raid0"}, "error"),
    ("1.33.5-20251108", {"images-on-raid0"}, "warning"),
])  # fmt: skip
def test_a_release_too_old_for_our_settings_names_one_that_follows(
    release: str, settings: set[str], worst: str
) -> None:
    found = list(faults.check(fleet({"ami": {"release": release}}, cluster={"version": "1.33"})))
    assert {str(item.numbers["setting"]) for item in found if item.id == "CMP012"} == settings
    assert worst in [item.severity for item in found]
    assert all("1.33.5-20260107" in item.fix for item in found)


@pytest.mark.parametrize(("release", "ids"), [
    ("1.33.0-0123abcd", ["CMP011"]),
    ("1.26.0-0123abcd", ["CMP011"]),
    ("1.20.0-0123abcd", ["CMP012", "CMP012"]),
    ("1.62.0-0123abcd", []),
])  # fmt: skip
def test_bottlerocket_has_faults_of_its_own(release: str, ids: list[str]) -> None:
    found = list(faults.check(fleet({"ami": {"bottlerocket": release}})))
    assert [item.id for item in found] == ids
    assert all(item.fix.startswith("a Bottlerocket release from 1.") for item in found)


def test_an_own_image_is_unknown_and_pools_alike_are_one_finding(planned: Any) -> None:
    own = {"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.35"}
    found = planned({"ami": own})["CMP011"]
    assert found["severity"] == "info"
    assert "doctor reads the image's tags" in found["message"]
    old = {"instances": ["g4dn.xlarge"], "nodes": {"max": 1}, "ami": {"release": "1.35.4-20260505"}}
    other = {**old, "instances": ["g5.xlarge"], "nvme": "none"}
    both = planned(old, pools={"a": old, "b": other}, runners={"gpu": {"pool": "a"}})["CMP011"]
    assert both["subject"] == "pools"
    assert len(both["edits"]) == 2


def test_the_base_of_the_image_that_is_built_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    image = next(ami for ami in catalog.eks_amis() if ami.release == "1.35.4-20260505")
    monkeypatch.setattr(catalog, "latest_ami", lambda kubernetes: image)
    fleet_ = fleet(images={"repositories": ["runner-gpu"], "ami": {"enabled": True}})
    assert "images.ami" in [item.subject for item in faults.check(fleet_)]


def test_versions_of_what_is_deployed_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [item for item in faults.check(fleet()) if item.subject == "cluster"]
    monkeypatch.setattr(catalog, "eks_addons", lambda: {"1.35": {"vpc-cni": "v1.22.1-eksbuild.2"}})
    (found,) = [item for item in faults.check(fleet()) if item.subject == "cluster"]
    assert found.severity == "error"
    assert found.fix == "1.22.2 or newer of vpc-cni in paddock/catalog/data/eks_addons.json"
    monkeypatch.setattr(catalog, "eks_addons", dict)
    monkeypatch.setattr(versions, "FLUENT_BIT", "2.34.0")
    (old,) = [item for item in faults.check(fleet(logs={"jobs": {"to": "cloudwatch"}})) if item.subject == "cluster"]
    assert (old.id, old.severity) == ("CMP012", "error")


def test_a_g7_runs_on_a_release_with_two_drivers(planned: Any) -> None:
    found = planned({"instances": ["g7.2xlarge"], "ami": {"release": "1.35.9-20260917"}})
    assert "CMP003" not in found
    either = planned({"instances": ["g5.xlarge"], "ami": {"release": "1.35.9-20260917"}})["CMP003"]
    assert either["severity"] == "info"
    assert "holds drivers R580 and R595, and takes one by instance family" in either["message"]
    older = planned({"instances": ["g7.2xlarge"], "ami": {"release": "1.35.6-20260714"}})["CMP003"]
    assert "or an EKS release from 20260917 on" in older["fix"]
