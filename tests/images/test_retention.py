"""Images that ECR's lifecycle rules take away, told before: by ECR's documented rules, moto, and the command itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from infra.manifests import manifest
from paddock import catalog
from paddock.errors import PaddockError
from paddock.images import check, retention
from paddock.images.retention import Pin, Repository, Shelf
from paddock.tasks.program import main

ACCOUNT, REGION, NAME = "123456789012", "us-west-2", "acme/runner-gpu"
HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
INDEX = "application/vnd.oci.image.index.v1+json"


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def image(number: int, *tags: str, days: float | None = None, **more: Any) -> dict[str, Any]:
    """Return an image as ECR describes it, by default the older the higher its number."""
    pushed = NOW - timedelta(days=number if days is None else days)
    return {"imageDigest": digest(number), "imageTags": list(tags), "imagePushedAt": pushed, **more}


def pin(number: int = 0, tag: str = "") -> Pin:
    return Pin("x", Repository(ACCOUNT, REGION, NAME), tag, "" if tag else digest(number), ("Pulumi.dev.yaml:1",))


def rule(priority: int, count: int, **selection: Any) -> dict[str, Any]:
    selection = {"countType": "imageCountMoreThan", "countNumber": count, **selection}
    return {"rulePriority": priority, "selection": selection, "action": {"type": "expire"}}


def ours(keep: int) -> Sequence[Mapping[str, Any]]:
    rules: Sequence[Mapping[str, Any]] = manifest("lifecycle", keep=keep)["rules"]
    return rules


def signed(number: int) -> list[dict[str, Any]]:
    """Return an image of ours with what the workflow attaches to it, and a signature of cosign 2, which has a tag."""
    subject = {"subjectManifestDigest": digest(number)}
    return [
        image(number, f"12.8-runner2.338.0-{number:012x}"),
        *(image(1000 * place + number, days=number - 0.01, **subject) for place in (1, 2)),
        image(3000 + number, f"sha256-{digest(number)[7:]}.sig", days=number - 0.01),
    ]


def standing(which: Pin, images: Sequence[Mapping[str, Any]], rules: Sequence[Mapping[str, Any]]) -> str:
    return retention.fate(which, Shelf(images, rules), NOW).standing


def test_signatures_and_attestations_of_images_do_not_count() -> None:
    held = [one for number in range(20) for one in signed(number)]
    assert standing(pin(16), held, ours(20)) == "kept"
    assert standing(pin(17), held, ours(20)) == "near"
    any_image = [rule(1, 20, tagStatus="any")]
    assert standing(pin(6), held, any_image) == "going", "a rule for any image counts them"


def test_our_rules_know_every_tag_that_our_recipes_write() -> None:
    tags = [*(f"{toolkit}-runner2.338.0-0" for toolkit in catalog.cuda_toolkits()), "nocuda-runner2.338.0-0", "py3-0"]
    for tag in tags:
        held = [image(0, tag), image(1, tag.replace("-0", "-1"))]
        assert standing(pin(1), held, ours(1)) == "going", tag


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (pin(5, "v1"), "kept"),
        (pin(5, "nobody-pushed-it"), "gone"),
        (pin(77), "unknown"),
        (pin(6), "archived"),
        (pin(8), "unknown"),
    ],
)
def test_tags_of_people_archives_and_parts_of_an_index_have_their_answer(which: Pin, expected: str) -> None:
    held = [
        image(5, "v1"),
        image(6, "12.8-a", imageStatus="ARCHIVED", lastArchivedAt=NOW),
        image(7, "12.8-b", imageManifestMediaType=INDEX),
        image(77),
        image(8, subjectManifestDigest=digest(7)),
    ]
    answer = retention.fate(which, Shelf(held, ours(20)), NOW)
    assert answer.standing == expected
    if expected == "archived":
        assert "--target-storage-class STANDARD" in answer.fix


def test_a_repository_that_is_not_there_has_lost_its_images() -> None:
    assert retention.fate(pin(), Shelf(None), NOW).standing == "gone"
    assert retention.fate(pin(0), Shelf([image(0, "a")]), NOW).standing == "kept", "no policy, so nothing is taken"


def test_a_registry_that_does_not_answer_leaves_the_pin_unknown() -> None:
    def denied(*_: object, **__: object) -> Any:
        raise PaddockError("AWS denies ecr:DescribeImages\n    fix: allow ecr:DescribeImages")

    (finding,) = check.registry(retention.fates([pin()], denied, denied, NOW))
    assert (finding.verdict, finding.fix) == ("unknown", "allow ecr:DescribeImages")
    assert "AWS denies" in finding.evidence


def test_rules_are_applied_as_in_the_examples_of_aws() -> None:
    # An image with tags of two rules is expired by neither but the first; the second counts it all the same.
    held = [image(10, "beta-1", "prod-1"), image(9, "beta-2", "prod-2"), image(8, "beta-3")]
    rules = [
        rule(1, 1, tagStatus="tagged", tagPatternList=["prod*"]),
        rule(2, 1, tagStatus="tagged", tagPrefixList=["beta"]),
    ]
    assert [standing(pin(number), held, rules) for number in (10, 9, 8)] == ["going", "near", "near"]
    both = [rule(1, 1, tagStatus="tagged", tagPatternList=["*beta*", "*prod*"])]
    assert [standing(pin(number), held, both) for number in (10, 9, 8)] == ["going", "near", "kept"]
    age = [rule(1, 14, tagStatus="any", countType="sinceImagePushed", countUnit="days")]
    assert [standing(pin(number), [image(number, "a")], age) for number in (14, 13, 6)] == ["going", "near", "kept"]


@given(st.integers(1, 30), st.integers(1, 60), st.data())
def test_a_pin_stays_until_as_many_pushes_as_are_told(keep: int, count: int, data: st.DataObject) -> None:
    held = [image(number, f"12.8-{number}") for number in range(count)]
    which = pin(data.draw(st.integers(0, count - 1)))

    def pushed(more: int) -> list[dict[str, Any]]:
        return [*held, *(image(9000 + number, f"13.0-{number}", days=-1 - number) for number in range(more))]

    left = next(more for more in range(100) if standing(which, pushed(more), ours(keep)) == "going")
    answer = retention.fate(which, Shelf(held, ours(keep)), NOW)
    assert (answer.standing == "going") == (left == 0)
    assert (answer.standing == "near") == (0 < left <= retention.NEAR_PUSHES)
    if left:
        assert f"after {left} more push" in answer.message


def test_every_key_of_every_stack_file_pins_and_comments_do_not(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: x\n")
    for stack, text in {
        "dev": f'a: "{HOST}/{NAME}:12.8-a@{digest(1)}"  # {HOST}/{NAME}:old\nb: [{HOST}/acme/gateway:py3-b]\n',
        "prod": f"a: {HOST}/{NAME}:12.8-a@{digest(1)}\n# c: {HOST}/{NAME}:gone\nd: ghcr.io/x/y:1\n",
    }.items():
        (tmp_path / f"Pulumi.{stack}.yaml").write_text(text)
    found = {one.reference.removeprefix(f"{HOST}/"): one.places for one in retention.pins(tmp_path)}
    assert found == {
        f"{NAME}:12.8-a@{digest(1)}": ("Pulumi.dev.yaml:1", "Pulumi.prod.yaml:1"),
        "acme/gateway:py3-b": ("Pulumi.dev.yaml:2",),
    }


@pytest.fixture
def checked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, list[dict[str, str]]]]:
    """Return what calls `images.check --registry` on a stack file that pins a tag, with moto in the place of AWS."""
    (tmp_path / "Pulumi.yaml").write_text((root / "Pulumi.yaml").read_text())
    for name, value in {
        "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "PADDOCK_ROOT": str(tmp_path),
        "PADDOCK_PROGRAM": "./inv", "PATH": str(tmp_path),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    def run(tag: str) -> tuple[int, list[dict[str, str]]]:
        text = (root / "Pulumi.dev.yaml").read_text()
        named = f'    images: {{runner: "{HOST}/{NAME}:{tag}"}}\n    pools:\n'
        (tmp_path / "Pulumi.dev.yaml").write_text(text.replace("    pools:\n", named, 1))
        code = main(["inv", "images.check", "--registry", "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return code, [finding for finding in findings if finding["about"] == "registry"]

    return run


def test_the_command_tells_which_pin_the_registry_takes_away(checked: Any) -> None:
    with mock_aws():
        ecr = boto3.client("ecr", REGION)
        code, (finding,) = checked("12.8-0")
        assert (code, finding["verdict"], "there is no repository" in finding["evidence"]) == (1, "wrong", True)
        ecr.create_repository(repositoryName=NAME)
        for number in range(5):
            part = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "size": 1, "digest": digest(number)}
            media = "application/vnd.oci.image.manifest.v1+json"
            body = {"schemaVersion": 2, "mediaType": media, "config": part, "layers": [part]}
            ecr.put_image(repositoryName=NAME, imageManifest=json.dumps(body), imageTag=f"12.8-{number}")
        assert checked("12.8-0")[1][0]["verdict"] == "ok", "the repository has no rules"
        ecr.put_lifecycle_policy(repositoryName=NAME, lifecyclePolicyText=json.dumps({"rules": ours(7)}))
        _, (finding,) = checked("12.8-4")
        assert '"All but the newest 7 with CUDA" takes it away after' in finding["evidence"]
        _, (finding,) = checked("12.8-9")
        assert (finding["verdict"], "does not have it" in finding["evidence"]) == ("wrong", True)
