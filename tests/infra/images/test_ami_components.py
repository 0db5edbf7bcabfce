"""Input of Image Builder: documents it takes, scripts that arrive whole, values and tags that can be trusted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from infra.gpu import user_data
from infra.images import ami_components
from infra.images.ami_components import AMI, COMPONENTS, DROP_IN, FOLDER, Document
from infra.images.ami_pipeline import content_version
from paddock import catalog
from paddock.fleet import Fleet
from paddock.plan.engine.program import plan_graph
from tests.support.aws_models import problems
from tests.support.fleets import fleet_data, graph, stack

DIGEST = f"sha256:{'4' * 64}"
REPOSITORY = "123456789012.dkr.ecr.us-west-2.amazonaws.com/acme/runner-gpu"
RELEASE = "1.35.6-20260714"

_TEXT = {"type": "string", "minLength": 1}
_STEP = {
    "type": "object",
    "required": ["name", "action", "inputs"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "action": {"const": "ExecuteBash"},
        "timeoutSeconds": {"type": "integer", "minimum": 1},
        "onFailure": {"enum": ["Abort", "Continue", "Ignore"]},
        "maxAttempts": {"type": "integer", "minimum": 1},
        "inputs": {
            "type": "object",
            "required": ["commands"],
            "additionalProperties": False,
            "properties": {"commands": {"type": "array", "minItems": 1, "items": _TEXT}},
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["schemaVersion", "phases"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "schemaVersion": {"const": 1.0},
        "parameters": {
            "type": "array",
            "items": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "propertyNames": {"pattern": "^[A-Za-z0-9_-]{3,128}$"},
                "additionalProperties": {
                    "type": "object",
                    "required": ["type"],
                    "additionalProperties": False,
                    "properties": {"type": {"const": "string"}, "default": {"type": "string"}, "description": _TEXT},
                },
            },
        },
        "phases": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "steps"],
                "additionalProperties": False,
                "properties": {
                    "name": {"enum": ["build", "validate", "test"]},
                    "steps": {"type": "array", "minItems": 1, "items": _STEP},
                },
            },
        },
    },
}
"""Documents of AWSTOE, as far as ours go. From the Image Builder user guide: "Document schema and definitions"
(toe-use-documents.html), the inputs of ExecuteBash (toe-action-modules.html), and the names of parameters
(toe-user-defined-variables.html). The length of a document is in AWS's API model."""


VALIDATOR: Any = jsonschema.Draft202012Validator(SCHEMA)


def fleet(**parts: Any) -> Fleet:
    return stack(fleet_data(**parts)).fleet


def building(runner: str | None = f"{REPOSITORY}:tag@{DIGEST}", **parts: Any) -> Fleet:
    """A fleet whose pipeline takes a runner image in."""
    return fleet(images={"ami": {"enabled": True}} | ({"runner": runner} if runner else {}), **parts)


def p4d() -> dict[str, Any]:
    return {"pools": {"a100": {"instances": ["p4d.24xlarge"], "nodes": {"max": 1}}}, "runners": {}}


FLEETS: dict[str, Callable[[], Fleet]] = {
    "smallest": lambda: building(None),
    "with image": building,
    "everything": lambda: building(monitoring={"enabled": True}, **p4d()),
}


def steps(document: Document, phase: str = "") -> Iterator[dict[str, Any]]:
    for part in yaml.safe_load(document.data)["phases"]:
        if not phase or part["name"] == phase:
            yield from part["steps"]


def commands(document: Document) -> list[str]:
    """Commands of its steps, once its files are there."""
    return [line for step in steps(document) if step["name"] != "Files" for line in step["inputs"]["commands"]]


def brought(document: Document, folder: Path) -> dict[str, Path]:
    """The files that a component puts down, by their path on the machine: written below `folder` by its own bash."""
    (step,) = [step for step in steps(document) if step["name"] == "Files"]
    (text,) = step["inputs"]["commands"]
    here = re.sub(r"(?m)^(install -D -m \d+ /dev/stdin )(/\S+ << 'END-OF-FILE')$", rf"\1{folder}\2", text)
    subprocess.run(["bash", "-euo", "pipefail"], input=here, text=True, check=True)
    return {f"/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", FLEETS)
def test_image_builder_takes_every_document(kind: str) -> None:
    for document in ami_components.documents(FLEETS[kind]()):
        VALIDATOR.validate(yaml.safe_load(document.data))
        parameters = {
            "name": document.name,
            "semanticVersion": "1.0.0",
            "platform": "Linux",
            "clientToken": "a",
            "data": document.data,
        }
        assert problems("imagebuilder.CreateComponent", parameters) == []
        names = [step["name"] for step in steps(document, "build")]
        assert len(set(names)) == len(names)


def test_the_limit_of_a_document_is_one_that_is_held() -> None:
    request = {"name": "abc", "semanticVersion": "1.0.0", "platform": "Linux", "clientToken": "a", "data": "x" * 16_001}
    assert problems("imagebuilder.CreateComponent", request)


def test_the_schema_refuses_what_image_builder_would() -> None:
    (document,) = [d for d in ami_components.documents(building()) if d.name == "driver"]
    for broken in ("schemaVersion: 2.0", "schemaVersion: 1.0\nsteps: []"):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(yaml.safe_load(document.data.replace("schemaVersion: 1.0", broken)))
    for right, wrong in (("action: ExecuteBash", "action: RunBash"), ("commands:", "command:")):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(yaml.safe_load(document.data.replace(right, wrong)))


def test_scripts_arrive_as_they_are_and_none_is_left_behind(tmp_path: Path) -> None:
    there: dict[str, Path] = {}
    for document in ami_components.documents(building()):
        there |= brought(document, tmp_path)
    arrived = {path.name: path for name, path in there.items() if name.startswith(f"{FOLDER}/")}
    scripts = {path.name: path.read_bytes() for path in (AMI / "scripts").iterdir()}
    assert {name: path.read_bytes() for name, path in arrived.items()} == scripts
    assert {path.stat().st_mode & 0o777 for path in arrived.values()} == {0o755}
    assert there[DROP_IN].stat().st_mode & 0o777 == 0o644
    assert not [name for name, text in scripts.items() if b"{{" in text], "AWSTOE would read it as a variable"


def test_every_component_brings_what_it_calls_and_what_that_calls(tmp_path: Path) -> None:
    for document in ami_components.documents(building()):
        there = brought(document, tmp_path / document.name)
        called = set(re.findall(rf"{FOLDER}/[a-z-]+\.sh", " ".join(commands(document))))
        texts = " ".join(path.read_text() for path in there.values())
        nested = re.findall(r'(?:\$here|dirname "\$0"\)")/([a-z-]+\.sh)', texts)
        assert called, document.name
        assert called | {f"{FOLDER}/{name}" for name in nested} <= set(there), document.name


def test_a_component_step_is_one_command() -> None:
    for document in ami_components.documents(building()):
        for step in steps(document):
            assert len(step["inputs"]["commands"]) == 1
            assert "timeoutSeconds" in step


def test_every_parameter_is_declared_used_and_given_a_value_that_exists() -> None:
    declared_names = {*ami_components.parameters(building()), "recipe"}
    for document in ami_components.documents(building()):
        used = set(re.findall(r"\{\{ ([^ ]+) \}\}", " ".join(commands(document))))
        assert used == set(document.parameters), document.name
        assert used <= declared_names, document.name


def test_documents_and_components_are_the_same_and_cleanup_is_last() -> None:
    assert sorted(COMPONENTS) == sorted(path.stem for path in (AMI / "components").iterdir())
    assert COMPONENTS[-1] == "cleanup"


def test_what_is_asked_for_is_the_catalogues_word_on_the_release() -> None:
    base = next(ami for ami in catalog.eks_amis() if ami.release == RELEASE)
    parameters = ami_components.parameters(building())

    assert parameters == {
        "driver": base.driver,
        "cuda": "13.0",
        "kernel": base.kernel,
        "toolkit": base.container_toolkit,
        "kubernetes": "1.35",
        "release": RELEASE,
        "runnerImage": f"{REPOSITORY}@{DIGEST}",
        "snapshotters": "soci",
        "fabricManager": "",
        "dcgm": "",
    }


def test_a_branch_is_enough_to_ask_for() -> None:
    parameters = ami_components.parameters(fleet(images={"ami": {"enabled": True, "driver": "580"}}))
    assert parameters["driver"].startswith("580.")


def test_tags_are_facts_that_the_test_phase_compares() -> None:
    """So that whoever reads a tag may trust it."""
    tags = ami_components.tags(building())
    (facts,) = [d for d in ami_components.documents(building()) if d.name == "facts"]
    (verified,) = [step["inputs"]["commands"][0] for step in steps(facts, "test")]

    assert tags == {
        "paddock:fleet": "paddock-sample",
        "paddock:kubernetes": "1.35",
        "paddock:driver": "580.159.03",
        "paddock:cuda": "13.0",
        "paddock:kernel": "6.12.94",
        "paddock:toolkit": "1.19.1",
        "paddock:release": RELEASE,
        "paddock:runner-image": f"{REPOSITORY}@{DIGEST}",
    }
    for tag in tags:
        fact = {"toolkit": "container_toolkit"}.get(tag.removeprefix("paddock:"), tag.removeprefix("paddock:"))
        assert fact == "fleet" or f"'{fact.replace('-', '_')}={{{{ " in verified, tag


def test_what_is_not_known_has_no_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "eks_amis", lambda: ())
    branch_only = fleet(images={"ami": {"enabled": True, "driver": "580"}})
    assert ami_components.tags(branch_only) == {
        "paddock:fleet": "paddock-sample",
        "paddock:kubernetes": "1.35",
        "paddock:cuda": "13.0",
        "paddock:release": RELEASE,
    }


@pytest.mark.parametrize(("image", "prefetched"), [
    (f"{REPOSITORY}@{DIGEST}", f"{REPOSITORY}@{DIGEST}"),
    (f"{REPOSITORY}:12.8-runner@{DIGEST}", f"{REPOSITORY}@{DIGEST}"),
    (f"localhost:5000/runner@{DIGEST}", f"localhost:5000/runner@{DIGEST}"),
    (f"runner:tag@{DIGEST}", f"docker.io/library/runner@{DIGEST}"),
    (f"docker.io/runner:tag@{DIGEST}", f"docker.io/library/runner@{DIGEST}"),
    (f"acme/runner:tag@{DIGEST}", f"docker.io/acme/runner@{DIGEST}"),
])  # fmt: skip
def test_the_image_is_named_as_containerd_files_it(image: str, prefetched: str) -> None:
    assert ami_components.runner_image(building(image)) == prefetched


def test_the_image_comes_from_the_mirror_that_pods_pull_from() -> None:
    mirrored = building(f"ghcr.io/acme/runner@{DIGEST}", mirror={"images": f"{REPOSITORY.partition('/')[0]}/copies"})
    assert ami_components.runner_image(mirrored) == f"{REPOSITORY.partition('/')[0]}/copies/acme/runner@{DIGEST}"


def test_without_pre_pull_no_image_is_taken_in() -> None:
    data = {"runner": f"{REPOSITORY}@{DIGEST}", "ami": {"enabled": True, "prePull": False}}
    assert ami_components.runner_image(fleet(images=data)) is None
    assert "paddock:runner-image" not in ami_components.tags(fleet(images=data))


def test_nvswitches_are_on_whole_boards_from_a100_on() -> None:
    families = {
        name.partition(".")[0] for name, kind in catalog.instances().items() if ami_components.has_nvswitch(kind)
    }
    assert families == {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"}
    assert not ami_components.has_nvswitch(catalog.instance("p5.4xlarge")), "one H100 of a board"


def test_fabric_manager_and_dcgm_are_asked_for_where_they_are_needed() -> None:
    parameters = ami_components.parameters(building(monitoring={"enabled": True}, **p4d()))
    assert parameters["fabricManager"] == "fabric-manager"
    assert re.fullmatch(r"\d+\.\d+\.\d+", parameters["dcgm"]), "the version that dcgm-exporter embeds"


def test_the_image_lies_where_the_nodes_look_for_it() -> None:
    """nodeadm takes the SOCI snapshotter on 4 vCPU and 7 GiB, and two vCPU are below that."""
    small = {"pools": {"l4": {"instances": ["g6f.large", "g6f.4xlarge"], "nodes": {"max": 1}}}, "runners": {}}
    assert ami_components.parameters(building(None, **small))["snapshotters"] == "soci overlayfs"
    least = replace(catalog.instance("g4dn.xlarge"), vcpus=4, memory_mib=7 * 1024)
    assert user_data.pulls_fast(least)
    assert not user_data.pulls_fast(replace(least, vcpus=3))
    assert not user_data.pulls_fast(replace(least, memory_mib=7 * 1024 - 1))


@pytest.mark.parametrize("runner", [None, f"{REPOSITORY}@{DIGEST}"])
def test_the_drop_in_says_nothing_that_user_data_says_otherwise(runner: str | None, tmp_path: Path) -> None:
    """Drop-ins win over user data."""
    (node_component,) = [
        component for component in ami_components.documents(building(runner)) if component.name == "node"
    ]
    drop_in = yaml.safe_load(brought(node_component, tmp_path)[DROP_IN].read_text())
    node = user_data.node_config(building(runner).pools["t4"], 110)

    def differs(drop_in: dict[str, Any], theirs: dict[str, Any], at: str = "") -> Iterator[str]:
        for key, value in drop_in.items():
            other = theirs.get(key)
            if isinstance(value, dict) and isinstance(other, dict):
                yield from differs(value, other, f"{at}.{key}")
            elif value != other:
                yield f"{at}.{key}"

    images_stay_on_the_root_volume = [".spec.instance.localStorage.disabledMounts"] if runner else []
    assert list(differs(drop_in, node)) == images_stay_on_the_root_volume
    assert "maxPods" not in json.dumps(drop_in), "of each pool"


def test_the_builder_may_pull_that_one_repository() -> None:
    images = {"ami": {"enabled": True}, "runner": f"{REPOSITORY}@{DIGEST}"}
    planned = plan_graph(stack(fleet_data(images=images)))
    (policy,) = [r for r in planned.of_type("aws:iam/rolePolicy:RolePolicy") if r.name == "gpu-ami-builder-policy"]
    statements = json.loads(policy.inputs["policy"])["Statement"]

    assert {s["Resource"]: sorted(s["Action"]) for s in statements} == {
        "*": ["ecr:GetAuthorizationToken"],
        "arn:aws:ecr:us-west-2:123456789012:repository/acme/runner-gpu": [
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetDownloadUrlForLayer",
        ],
    }


def test_a_public_image_needs_no_permission() -> None:
    assert ami_components.ecr_repository(f"ghcr.io/acme/runner@{DIGEST}") is None
    assert not [r for r in graph("images").of_type("aws:iam/rolePolicy:RolePolicy") if r.name.startswith("gpu-ami")]


def test_the_image_knows_the_version_of_its_recipe() -> None:
    (recipe,) = graph("images").of_type("aws:imagebuilder/imageRecipe:ImageRecipe")
    parameters = {p["name"]: p["value"] for c in recipe.inputs["components"] for p in c.get("parameters", ())}
    assert parameters["recipe"] == recipe.inputs["version"]
    assert "" not in parameters.values()


def test_a_changed_script_makes_new_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(AMI, tmp_path / "ami")
    before = {d.name: content_version(d.data) for d in ami_components.documents(building())}
    monkeypatch.setattr(ami_components, "AMI", tmp_path / "ami")
    assert {d.name: content_version(d.data) for d in ami_components.documents(building())} == before
    with open(tmp_path / "ami" / "scripts" / "services.sh", "a", encoding="utf-8") as script:
        script.write("# changed\n")

    after = {d.name: content_version(d.data) for d in ami_components.documents(building())}
    assert {name for name in after if after[name] != before[name]} == {"node"}
