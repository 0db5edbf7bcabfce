"""Edits of findings: each one, applied to the stack file, ends its finding and brings no new error."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject

from paddock import clock
from paddock.console.output import BadFlag
from paddock.fleet import FleetError, load
from paddock.fleet.errors import EditError
from paddock.fleet.stackfile import edit
from paddock.plan.command import PlanParameters, finding_ids
from paddock.plan.command import plan as plan_command
from paddock.plan.finding import Finding, put
from paddock.plan.fix import fix
from paddock.plan.plan import Plan, build_plan
from tests.support import fleets, strategies
from tests.support.explore import examples
from tests.support.performing import performed

TODAY = date(2026, 9, 1)
_T4 = {"instances": ["g4dn.xlarge"], "capacity": "on-demand", "nodes": {"max": 2}}
_A100 = {"instances": ["p4d.24xlarge"], "capacity": "on-demand", "nodes": {"max": 1}}


def _cluster(**settings: Any) -> dict[str, Any]:
    return {"cluster": {"version": "1.35", "endpoint": {"allow": ["203.0.113.0/24"]}, **settings}}


def _fleet(pool: Mapping[str, Any] = _T4, runner: Mapping[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return fleets.fleet_data(pools={"t4": dict(pool)}, runners={"gpu": {"pool": "t4", **(runner or {})}}, **parts)


CORPUS: Mapping[str, tuple[dict[str, Any], date, set[str]]] = {
    "fits nowhere": (_fleet(runner={"cpu": 4, "memory": "16Gi"}), TODAY, {"FIT001"}),
    "fits on some": (_fleet({**_T4, "instances": ["g4dn.xlarge", "g4dn.2xlarge"]}, {"cpu": 7}), TODAY, {"FIT002"}),
    "a spot pool of one type": (_fleet({**_T4, "capacity": "spot"}), TODAY, {"RSZ003"}),
    "more than an autoscaler expects": (_fleet({**_T4, "instances": ["g5.xlarge"]}, {"memory": "14600Mi"}), TODAY,
        {"FIT003"}),
    "strands GPUs by cpu": (_fleet(_A100, {"cpu": 40}), TODAY, {"FIT004"}),
    "strands GPUs by memory": (_fleet(_A100, {"memory": "500Gi"}), TODAY, {"FIT004"}),
    "more jobs than nodes": (_fleet(runner={"max": 50}), TODAY, {"FIT005"}),
    "more idle runners than nodes": (_fleet(runner={"min": 5, "max": 9}), TODAY, {"FIT006"}),
    "more pods than addresses": (_fleet({**_T4, "maxPods": 110}), TODAY, {"FIT009"}),
    "too few system nodes": (_fleet({**_T4, "nodes": {"max": 200}}, {"container": "kubernetes-novolume"},
        network={"cidr": "10.0.0.0/16"}), TODAY, {"FIT007"}),
    "old images of two pools": (fleets.fleet_data(pools={name: {**_T4,
        "ami": {"release": "1.35.6-20260625"}} for name in ("t4", "t4-b")}, runners={"gpu": {"pool": "t4",
        "labels": ["one"]}, "two": {"pool": "t4-b", "labels": ["two"]}}), date(2026, 11, 1), {"CMP006"}),
    "support that ends soon": (_fleet(**_cluster(version="1.34")), date(2026, 10, 10), {"CMP007"}),
    "extended support": (_fleet(**_cluster(support="extended")), TODAY, {"PAD004"}),
    "deletion and short logs": (_fleet(**_cluster(deletionProtection=False, logDays=30), network={"zones": 2,
        "flowLogDays": 7}, logs={"jobs": {"to": "cloudwatch", "days": 30}}), TODAY, {"PAD006", "PAD022"}),
    "a label that is another runner's name": (fleets.fleet_data(pools={"t4": _T4, "a100": _A100},
        runners={"gpu": {"pool": "t4"}, "x8": {"pool": "a100", "gpus": 8, "labels": ["self-hosted", "GPU", "large"]}}),
        TODAY, {"CON012"}),
    "a label of two runners": (fleets.fleet_data(pools={"t4": _T4, "a100": _A100}, runners={"small": {"pool": "t4",
        "labels": ["gpu", "small"]}, "large": {"pool": "a100", "gpus": 8, "labels": ["gpu", "large"]}}), TODAY, set()),
    "more listeners than addresses": (fleets.fleet_data(pools={"t4": {**_T4, "nodes": {"max": 12}}},
        runners={f"r{number}": {"pool": "t4"} for number in range(12)}, cluster={"version": "1.35",
        "system": {"nodes": {"min": 1, "max": 1}}}), TODAY, {"QUO005"}),
    "no way out": (fleets.SAMPLES["private"], TODAY, {"CFG002", "RSZ003"}),
}  # fmt: skip
"""Fleets with something to fix, the day, and the findings that have edits."""


def stack_file(folder: Path, data: Mapping[str, Any], **config: Any) -> Path:
    """Write a stack file, and the project's beside it."""
    (folder / "Pulumi.yaml").write_text("name: paddock\nruntime: python\n")
    path = folder / "Pulumi.dev.yaml"
    path.write_text(json.dumps({"config": {"aws:region": "us-west-2", "paddock:fleet": data, **config}}, indent=1))
    return path


def plan_of(path: Path, today: date = TODAY, content: bytes | None = None) -> Plan:
    return build_plan(load(path.parent, "dev", content), today)


def fixable(plan: Plan) -> Iterator[Finding]:
    return (finding for finding in plan.findings if finding.edits)


def check_each_edit(path: Path, today: date) -> set[str]:
    """Apply each finding's edits alone, which end it or leave a milder one; return the ids of those that have some."""
    plan = plan_of(path, today)
    for finding in fixable(plan):
        assert finding.fix
        changes = {entry.key: edit.REMOVE if entry.remove else entry.value for entry in finding.edits}
        after = plan_of(path, today, edit.edited(path.name, path.read_bytes(), changes))
        before, left = (
            Counter((f.id, f.subject, f.severity) for f in findings) for findings in (plan.findings, after.findings)
        )
        key = (finding.id, finding.subject, finding.severity)
        assert left[key] < before[key], (finding, after.findings)
        errors, new = ({(f.id, f.subject) for f in p.findings if f.severity == "error"} for p in (plan, after))
        assert new <= errors, (finding, new - errors)
    return {finding.id for finding in fixable(plan)}


@pytest.mark.parametrize("name", CORPUS)
def test_each_edit_ends_its_finding_without_a_new_error(name: str, tmp_path: Path) -> None:
    data, today, ids = CORPUS[name]
    assert check_each_edit(stack_file(tmp_path, data), today) == ids


def test_a_fix_names_the_key_that_its_owner_wrote() -> None:
    data = fleets.fleet_data(
        cluster={"version": "1.35", "endpoint": {"allow": "any"}},
        network={"zones": 2, "egress": {"allow": ["10.0.0.0/8"]}},
        runners={
            "gpu": {"pool": "t4", "image": "ghcr.io/acme/runner:latest", "environment": {"HF_TOKEN": "x"}},
            "job": {"pool": "t4", "container": "kubernetes-novolume"},
        },
    )
    fixes = {finding.id: finding.fix for finding in build_plan(fleets.stack(data), TODAY).findings}
    for id_, begin in {
        "PAD003": "cluster.endpoint.allow: those of your people and CI",
        "PAD029": "runners.job.container: none, or a stack of its own",
        "PAD031": "leave runners.gpu.environment.HF_TOKEN out",
        "PAD032": "runners.gpu.image: a tag that names a version",
        "PAD037": "network.egress.allow: only those parts of 10.0.0.0/8",
    }.items():
        assert fixes[id_].startswith(begin), id_


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_each_edit_of_an_example_ends_its_finding(name: str, root: Path, tmp_path: Path) -> None:
    path = stack_file(tmp_path, {})
    path.write_bytes((root / f"Pulumi.{name}.yaml").read_bytes())
    check_each_edit(path, TODAY)


@examples(3, 30, suppress_health_check=list(HealthCheck))
@given(strategies.fleets())
def test_each_edit_of_any_fleet_ends_its_finding(tmp_path: Path, data: dict[str, Any]) -> None:
    path = stack_file(tmp_path, data)
    try:
        load(tmp_path, "dev")
    except FleetError:
        reject()  # a name that the loader refuses
    check_each_edit(path, TODAY)


STACK = """\
# Owned by the platform team.
config:
  aws:region: us-west-2
  paddock:fleet:
    github: {url: https://github.com/acme, app: {id: "12345", installation: "678"}}
    cluster: {version: "1.35", deletionProtection: false}   # for now
    pools:
      t4: {instances: [g4dn.xlarge], capacity: on-demand, nodes: {max: 2}}
    runners:
      gpu:
        pool: t4
        max: 50     # as many as there are
  paddock:suppressions:
    # no longer true
    - {rule: PAD022, resource: nothing, reason: "accepted by the platform team", expires: "@day"}
    - rule: PAD-06
      resource: cluster-eksCluster
      reason: "taken down every week"
      expires: "@day"
""".replace("@day", str(clock.today() + timedelta(days=30)))
FIXED = re.sub(r"    - {rule: PAD022.*\n", "", STACK.replace("max: 50 ", "max: 2 ").replace("PAD-06", "PAD006"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = stack_file(tmp_path, {})
    path.write_text(STACK)
    path.chmod(0o640)
    return path


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fixes_change_their_keys_and_no_other_byte(file: Path, newline: str) -> None:
    file.write_bytes(STACK.replace("\n", newline).encode())
    result = fix(plan_of(file), file.parent)
    assert result
    assert result.after.decode() == FIXED.replace("\n", newline)
    assert {finding.id for finding in result.findings} == {"FIT005", "SUP001", "SUP002"}
    assert not [finding for finding in fixable(result.plan) if finding.severity != "info"]


def test_only_the_findings_that_are_named_are_fixed(file: Path) -> None:
    result = fix(plan_of(file), file.parent, {"FIT005"})
    assert result
    assert result.after.decode() == STACK.replace("max: 50 ", "max: 2 ")
    assert fix(plan_of(file), file.parent, {"PAD033"}) is None


def test_a_fix_that_brings_a_new_error_is_refused(file: Path) -> None:
    plan = plan_of(file)
    wrong = Finding("FIT005", "warning", "runners.gpu.max", "", "", (put("runners", "gpu", "cpu", value=60),))
    with pytest.raises(EditError, match=r"would have a new error\n    FIT001 runners.gpu"):
        fix(replace(plan, findings=(wrong,)), file.parent, {"FIT005"})


def run(root: Path, **flags: Any) -> int:
    try:
        return performed(plan_command, root, PlanParameters(**flags))
    finally:
        gc.enable()  # the command switches it off for its own short process


def test_without_a_terminal_a_fix_is_shown_and_not_made(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadFlag, match="there is no terminal to ask on"):
        run(file.parent, fix="")
    assert (
        "-        max: 50     # as many as there are\n+        max: 2     # as many as there are\n"
        in capsys.readouterr().out
    )
    assert file.read_text() == STACK


def test_a_fix_that_is_agreed_to_is_written_and_planned(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file.parent, fix="", yes=True) == 0
    assert "Pulumi.dev.yaml is written; this is its plan now." in capsys.readouterr().out
    assert file.read_text() == FIXED
    assert file.stat().st_mode & 0o777 == 0o640


def test_ids_to_fix_are_read_with_a_hint() -> None:
    assert finding_ids("fix", "") == frozenset()
    assert finding_ids("fix", "fit005, PAD-06") == {"FIT005", "PAD006"}
    with pytest.raises(BadFlag, match="did you mean FIT0"):
        finding_ids("fix", "FIT05")
    with pytest.raises(BadFlag, match="--yes has nothing to agree to"):
        run(Path(), yes=True)


def test_an_image_for_a_new_gpu_has_a_first_cuda_too() -> None:
    data = fleets.fleet_data(
        pools={"b200": {"instances": ["p6-b200.48xlarge"], "capacity": "on-demand", "nodes": {"max": 1}}},
        runners={"gpu": {"pool": "b200", "gpus": 8, "image": "ghcr.io/acme/runner:cuda12.4"}},
    )
    plan = build_plan(fleets.stack(data), TODAY)
    (finding,) = (finding for finding in plan.findings if finding.id == "CMP002")
    assert finding.fix == "runners.gpu.image: an image with CUDA 12.8 to 13.0"
