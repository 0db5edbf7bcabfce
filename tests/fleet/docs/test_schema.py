"""The JSON Schema accepts what loads, and refuses what is malformed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from paddock.fleet import Fleet, FleetError, load
from paddock.fleet.docs import json_schema, reference
from paddock.fleet.stackfile.configuration import KNOWN_KEYS
from paddock.fleet.stackfile.yaml_document import MAX_BYTES, Document
from tests.support.explore import examples
from tests.support.fleets import stack
from tests.support.strategies import LABELS, fleets, some

BAD_INPUT = Path(__file__).resolve().parents[2] / "bad_input"
FLEET = Draft202012Validator(json_schema.schema())
STACK = Draft202012Validator(json_schema.stack_schema())

UNREADABLE = {path.stem for path in BAD_INPUT.glob("yaml-*.yaml")} | {
    "alias-of-itself", "duplicate-key", "list-as-key", "merge-of-a-list", "not-finite",
}  # fmt: skip
"""Files that no schema ever sees, because they are no valid YAML or none that Go reads."""

BEYOND = {
    "access-by-two-paths", "access-twice", "push-provider-of-another",
    "ami-build", "ami-driver-of-no-gpu", "ami-of-another-version", "ami-too-old", "capacity-block",
    "date-without-quotes", "disk-smallest", "dind-on-shared-node", "egress-allow", "endpoint-private", "enterprise-app",
    "enterprise-server-version", "existing-cluster-network", "fallback-of-on-demand", "fewer-subnets-than-zones",
    "job-logs-of-any-cluster", "large-vpc", "max-below-min", "mig-profile", "mirror-archives", "mirror-no-folder",
    "shm-with-mps", "mounts-taken", "more-gpus-than-a-node", "name-not-text",
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
    assert (root / json_schema.PATH).read_text() == json_schema.text(), "run: inv init --schema --write"


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


AMOUNTS = st.integers(1, 64).flatmap(lambda n: st.sampled_from([f"{n}Gi", f"{n * 100}Mi"]))
RUNNERS = some(
    cpu=st.sampled_from([1, 2.5, "3", "1500m", "0.5"]),
    memory=AMOUNTS,
    shm=AMOUNTS,
    environment=st.dictionaries(LABELS, st.text(max_size=5), max_size=2),
)
PARTS = some(
    network=some(zones=st.sampled_from([2, 3, ["us-west-2a", "us-west-2b"]]), nat=st.just("per-zone")),
    tags=st.dictionaries(LABELS, st.text("aZ09 .:/=+@_-", max_size=9), max_size=2),
)


@examples(25, 200, suppress_health_check=list(HealthCheck))
@given(fleets(), RUNNERS, PARTS)
def test_what_loads_validates_and_comes_back_equal(
    data: dict[str, Any], runner: dict[str, Any], parts: dict[str, Any]
) -> None:
    runners = {name: written | runner for name, written in data["runners"].items()}
    written = {**data, **parts, "name": "acme", "region": "us-west-2", "runners": runners}
    try:
        stack(written)
    except FleetError:
        reject()
    fleet = Fleet.model_validate(written, strict=True)
    assert errors(FLEET, written) == []
    dumped = json.loads(json.dumps(fleet.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    assert errors(FLEET, dumped) == []
    assert Fleet.model_validate(dumped, strict=True) == fleet


def test_every_default_is_valid_where_it_is() -> None:
    definitions = json_schema.stack_schema()["$defs"]
    for part in definitions.values():
        for key, shape in part["properties"].items():
            if "default" in shape and not isinstance(shape["default"], dict):
                assert not errors(Draft202012Validator({**shape, "$defs": definitions}), shape["default"]), key


def test_the_reference_is_what_the_model_says(root: Path) -> None:
    assert (root / reference.PATH).read_text() == reference.render(), "run: inv init --schema --write"


def test_the_example_in_the_reference_loads_and_validates(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: paddock\n")
    example = reference.render().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "Pulumi.dev.yaml").write_text(example)
    assert load(tmp_path, "dev").fleet.name == "paddock-dev"
    assert errors(STACK, Document("", example.encode()).data) == []


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
    assert f"at most {MAX_BYTES // 1024} KiB" in text
