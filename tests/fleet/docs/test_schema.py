"""The JSON Schema accepts what loads, and refuses what is malformed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from paddock import catalog
from paddock.fleet import Fleet, FleetError, load
from paddock.fleet.docs import introduction, json_schema, reference
from paddock.fleet.stackfile.configuration import KNOWN_KEYS
from paddock.fleet.stackfile.yaml_document import Document
from paddock.fleet.validation import check
from tests.support.explore import examples

BAD_INPUT = Path(__file__).resolve().parents[2] / "bad_input"
FLEET = Draft202012Validator(json_schema.schema())
STACK = Draft202012Validator(json_schema.stack_schema())

UNREADABLE = {path.stem for path in BAD_INPUT.glob("yaml-*.yaml")} | {
    "alias-of-itself", "duplicate-key", "list-as-key", "merge-of-a-list", "not-finite",
}  # fmt: skip
"""Files that no schema ever sees, because they are no valid YAML or none that Go reads."""

BEYOND = {
    "access-twice", "ami-build", "ami-driver-of-no-gpu", "ami-of-another-version", "capacity-block",
    "date-without-quotes", "dind-on-shared-node", "egress-allow", "endpoint-private", "enterprise-app", "shm-with-mps",
    "enterprise-server-version", "existing-cluster-network", "fallback-of-on-demand", "fewer-subnets-than-zones",
    "job-logs-of-any-cluster", "large-vpc", "max-below-min", "mig-profile", "mirror-archives", "mirror-no-folder",
    "mounts-taken", "more-gpus-than-a-node", "name-not-text",
    "no-region", "provider-key-in-clear-text", "reserved-environment", "overlapping-subnets",
    "public-endpoint-in-halves", "region-mismatch", "repository-group", "repository-group-of-a-runner",
    "push-ids-on-a-server", "reservation-of-two-types", "runner-group", "runtime-variable", "same-labels",
    "same-scale-set", "sharing-with-many-gpus", "small-subnets", "small-vpc", "system-max-below-min", "time-zone",
    "too-few-addresses", "two-gpu-models", "unknown-pool", "version-unknown", "volume-mounts", "zones",
    "unknown-region", "region-of-another-partition", "zones-of-the-account", "more-zones-than-the-region",
    "serving-elsewhere", "serving-pools",
}  # fmt: skip
"""Well-formed, but wrong between the parts, or by the facts: for `inv plan` to say."""


def errors(validator: Draft202012Validator, data: Any) -> list[str]:
    return [error.message for error in validator.iter_errors(data)]


def test_the_schemas_are_valid_themselves() -> None:
    for document in (json_schema.schema(), json_schema.stack_schema()):
        Draft202012Validator.check_schema(document)


def test_the_file_in_docs_is_what_the_model_says(root: Path) -> None:
    assert (root / json_schema.PATH).read_text() == json_schema.text(), "run: inv schema --write"


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_example_stacks_validate(stack: str, root: Path) -> None:
    data = Document("", (root / f"Pulumi.{stack}.yaml").read_bytes()).data
    assert errors(STACK, data) == []
    assert errors(FLEET, data["config"]["paddock:fleet"]) == []


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_what_is_dumped_loads_equal_and_validates(stack: str, root: Path) -> None:
    fleet = load(root, stack).fleet
    dumped = json.loads(json.dumps(fleet.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    assert errors(FLEET, dumped) == []
    assert Fleet.model_validate(dumped, strict=True) == fleet


@pytest.mark.parametrize("case", sorted(path.stem for path in BAD_INPUT.glob("*.yaml")))
def test_malformed_input_fails_the_schema_too(case: str) -> None:
    content = (BAD_INPUT / f"{case}.yaml").read_bytes()
    if case in UNREADABLE:
        with pytest.raises(FleetError):
            Document("", content)
    else:
        assert bool(errors(STACK, Document("", content).data)) is (case not in BEYOND)


def test_every_setting_is_described_and_none_unknown_is_allowed() -> None:
    document = json_schema.stack_schema()
    for name, model in document["$defs"].items():
        assert model["additionalProperties"] is False, name
        assert model["description"], name
        for key, field in model["properties"].items():
            assert field.get("description"), f"{name}.{key}"


def test_name_and_region_need_not_be_written() -> None:
    assert json_schema.schema()["required"] == ["github", "pools"]


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
GPU_TYPES = [instance for instance in catalog.instances().values() if instance.gpu]
AMOUNTS = st.integers(1, 64).flatmap(lambda n: st.sampled_from([f"{n}Gi", f"{n * 100}Mi"]))


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Fleets as a user could write them, each setting there or not."""
    pools = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        instance = draw(st.sampled_from(GPU_TYPES))
        minimum = draw(st.integers(0, 2))
        pools[name] = {
            "instances": [instance.name],
            "nodes": {"min": minimum, "max": minimum + draw(st.integers(1, 3))},
            **draw(
                some(
                    capacity=st.sampled_from(["spot", "on-demand", {"reserved": "cr-0123456789abcdef0"}]),
                    sharing=st.sampled_from(["none", {"timeSlicing": 4}, {"mps": 2}]),
                    disk=some(size=AMOUNTS, iops=st.integers(3000, 16000)),
                    maxPods=st.integers(16, 60),
                    labels=st.dictionaries(NAMES, NAMES, max_size=2),
                    update=some(strategy=st.sampled_from(["default", "minimal"])),
                    repair=st.booleans(),
                )
            ),
        }
    runners = {
        name: {
            "pool": draw(st.sampled_from(sorted(pools))),
            **draw(
                some(
                    cpu=st.sampled_from([1, 2.5, "3", "1500m", "0.5"]),
                    memory=AMOUNTS,
                    max=st.integers(1, 9),
                    container=st.sampled_from(["none", "kubernetes-novolume"]),
                    priority=st.integers(-1000, 1000),
                    warm=st.just([{"at": "0 8 * * 1-5", "min": 1}]),
                    environment=st.dictionaries(NAMES, st.text(max_size=5), max_size=2),
                    shm=AMOUNTS,
                    volumes=st.fixed_dictionaries(
                        {},
                        optional={
                            "a": st.fixed_dictionaries({"scratch": AMOUNTS, "mount": st.just("/a")}),
                            "b": st.just({"claim": "models", "mount": "/b", "readOnly": True}),
                            "c": st.fixed_dictionaries({"volume": AMOUNTS, "mount": st.just("/c")}),
                        },
                    ),
                )
            ),
        }
        for name in draw(
            st.lists(NAMES.map("gpu-{}".format), max_size=3, unique=True)
        )  # never y or on: no text to YAML
    }
    for runner in runners.values():
        if "mps" in pools[runner["pool"]].get("sharing", {}):  # it brings its own
            runner.pop("shm", None)
    return {
        "name": "acme",
        "region": "us-west-2",
        "github": {"url": "https://github.com/acme", "token": "config"},
        "pools": pools,
        "runners": runners,
        **draw(
            some(
                cluster=some(
                    version=st.just("1.35"),
                    endpoint=st.sampled_from([{"allow": "any"}, {"allow": ["203.0.113.0/24"]}, {}]),
                    logDays=st.sampled_from([1, 90, 365, 3653]),
                ),
                network=some(zones=st.sampled_from([2, 3, ["us-west-2a", "us-west-2b"]]), nat=st.just("per-zone")),
                monitoring=some(enabled=st.booleans()),
                tags=st.dictionaries(NAMES, st.text("aZ09 .:/=+@_-", max_size=9), max_size=2),
            )
        ),
    }


@examples(25, 200)
@given(fleets())
def test_what_loads_validates_and_comes_back_equal(written: dict[str, Any]) -> None:
    fleet = check(Fleet.model_validate(written, strict=True))
    assert errors(FLEET, written) == []
    dumped = json.loads(json.dumps(fleet.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    assert errors(FLEET, dumped) == []
    assert Fleet.model_validate(dumped, strict=True) == fleet


def test_the_reference_is_what_the_model_says(root: Path) -> None:
    assert (root / reference.PATH).read_text() == reference.render(), "run: inv schema --write"


def test_the_example_in_the_reference_loads_and_validates(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: paddock\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(introduction.EXAMPLE)
    assert load(tmp_path, "dev").fleet.name == "paddock-dev"
    assert errors(STACK, Document("", introduction.EXAMPLE.encode()).data) == []


def test_the_reference_holds_every_part_and_link() -> None:
    text = reference.render()
    for model in json_schema.stack_schema()["$defs"].values():
        for key in model["properties"]:
            assert f"`{key}`" in text or f"{{{key}: " in text, key
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors


def test_both_files_are_written(tmp_path: Path) -> None:
    assert [path.relative_to(tmp_path).as_posix() for path in reference.write(tmp_path)] == [
        reference.PATH,
        json_schema.PATH,
    ]


def test_the_schema_knows_every_key_that_the_loader_knows() -> None:
    keys = json_schema.stack_schema()["properties"]["config"]["properties"]
    assert set(KNOWN_KEYS) == set(keys)
    text = reference.render()
    assert all(f"`{key}`" in text for key in keys)
