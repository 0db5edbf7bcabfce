"""The loader hands on what Pulumi would: the same text for every value, the same fleet from either."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.fleet import FleetError, Stack, load, parse, stack_names
from paddock.fleet.stackfile.scalars import go_json, go_text
from paddock.fleet.stackfile.yaml_document import Document
from tests.support.explore import examples
from tests.support.strategies import HOSTILE_TEXTS

HERE = Path(__file__).resolve().parent
VALUES = (HERE / "pulumi_values.yaml").read_bytes()
RECORDED: dict[str, str] = json.loads((HERE / "pulumi_values.json").read_text())["values"]
"""What a program got from `pulumi.Config` for each, recorded with the engine that stands in the file."""

FLEET = """\
    github: {url: https://github.com/acme, token: config}
    pools:
      t4: {instances: [g4dn.xlarge], nodes: {max: 5}}
      a10g: {instances: [g5.xlarge], nodes: {max: 2}}
    runners:
      gpu: {pool: t4}
"""
STACK = f"config:\n  aws:region: us-west-2\n  paddock:fleet:\n{FLEET}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: acme\nruntime: python\n")
    return tmp_path


def loaded(project: Path, content: str, stack: str = "dev") -> Stack:
    (project / f"Pulumi.{stack}.yaml").write_text(content, encoding="utf-8")
    return load(project, stack)


def refusal(project: Path, content: str) -> str:
    with pytest.raises(FleetError) as caught:
        loaded(project, content)
    return str(caught.value)


@pytest.mark.parametrize("key", RECORDED)
def test_a_value_is_the_text_that_pulumi_hands_to_the_program(key: str) -> None:
    assert go_text(Document("", VALUES).data["config"][key]) == RECORDED[key]


def test_every_value_has_an_answer() -> None:
    assert list(Document("", VALUES).data["config"]) == list(RECORDED)


PULUMI = shutil.which("pulumi", path=os.pathsep.join([os.environ.get("PADDOCK_LAB_BIN", ""), os.environ["PATH"]]))


@pytest.mark.e2e
@pytest.mark.skipif(PULUMI is None, reason="no pulumi on PATH")
def test_the_engine_still_gives_these_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", (tmp_path / "state").as_uri())
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    monkeypatch.setenv("PULUMI_SKIP_UPDATE_CHECK", "true")
    (tmp_path / "state").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: paddock-values\nruntime: python\n")

    def pulumi(*arguments: str) -> str:
        process = subprocess.run([str(PULUMI), *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return process.stdout

    pulumi("stack", "init", "dev")
    stack = tmp_path / "Pulumi.dev.yaml"
    salt = stack.read_bytes() if stack.exists() else b""
    stack.write_bytes(VALUES + salt)
    answers = json.loads(pulumi("config", "--json"))
    assert {key: answers[key]["value"] for key in RECORDED} == RECORDED


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_program_reads_the_same_fleet_as_the_plan(stack: str, root: Path) -> None:
    stack_file = load(root, stack)
    assert parse(stack_file.config, stack_file.project, stack_file.name) == stack_file.fleet


def test_pools_keep_the_order_of_the_file(project: Path) -> None:
    stack = loaded(project, STACK)
    assert list(stack.fleet.pools) == ["t4", "a10g"]
    assert list(json.loads(stack.config["paddock:fleet"])["pools"]) == ["a10g", "t4"]


@pytest.mark.parametrize(("key", "full"), [
    ("bucket", "acme:bucket"),
    ("aws:profile", "aws:profile"),
    ("aws:config:profile", "aws:profile"),
    ("kubernetes:enableServerSideApply", "kubernetes:enableServerSideApply"),
])  # fmt: skip
def test_a_key_belongs_to_the_project_unless_it_says_otherwise(key: str, full: str, project: Path) -> None:
    assert loaded(project, f"{STACK}  {key}: x\n").config[full] == "x"


def test_a_secret_stays_encrypted_and_is_known_as_one(project: Path) -> None:
    stack = loaded(
        project,
        f"{STACK}  paddock:githubToken: {{secure: AAAB}}\n"
        "  acme:nested: {a: [{secure: AAAC}], b: 1}\n  acme:c: 1\n",
    )
    assert stack.config["paddock:githubToken"] == "AAAB"
    assert stack.secrets == {"paddock:githubToken", "acme:nested"}


def test_the_project_file_configures_every_stack(project: Path) -> None:
    (project / "Pulumi.yaml").write_text(
        "name: acme\nruntime: python\nconfig:\n  aws:region: us-west-2\n  aws:profile: {value: other}\n"
        "  size: {type: integer, default: 7}\n  unset: {type: string}\n"
    )
    config = loaded(project, f"config:\n  aws:profile: own\n  paddock:fleet:\n{FLEET}").config
    assert config["aws:region"] == "us-west-2"
    assert config["aws:profile"] == "own"
    assert config["acme:size"] == "7"
    assert "acme:unset" not in config


def test_anchors_aliases_and_merge_keys(project: Path) -> None:
    stack = loaded(
        project,
        "x: &small {nodes: {max: 2}, instances: [g4dn.xlarge]}\nconfig:\n  aws:region: us-west-2\n  paddock:fleet:\n"
        "    github: {url: https://github.com/acme, token: config}\n"
        "    pools:\n      a: {<<: *small, nodes: {max: 3}}\n      b: *small\n"
        "      c: {<<: [{repair: false}, *small]}\n",
    )
    pools = stack.fleet.pools
    assert [pool.nodes.max for pool in pools.values()] == [3, 2, 2]
    assert not pools["c"].repair


def test_a_mistake_behind_an_alias_is_reported_once(project: Path) -> None:
    text = refusal(project, STACK.replace("gpu: {pool: t4}", "gpu: &r {pool: t4, gpu: 1}\n      gpu-two: *r"))
    assert text.count("unknown key") == 2
    assert "Pulumi.dev.yaml:9: paddock:fleet.runners.gpu.gpu:" in text


def test_the_name_and_the_region_come_from_the_stack(project: Path) -> None:
    fleet = loaded(project, STACK, "test").fleet
    assert (fleet.name, fleet.region) == ("acme-test", "us-west-2")
    assert loaded(project, f"{STACK}    region: us-west-2\n").fleet.region == "us-west-2"
    own = loaded(project, f"config:\n  paddock:fleet:\n{FLEET}    name: gpu\n    region: eu-west-1\n").fleet
    assert (own.name, own.region) == ("gpu", "eu-west-1")


@pytest.mark.parametrize("key", ["aws:regoin", "aws:Region", "awsregion", "region"])
def test_a_mistyped_region_is_named(project: Path, key: str) -> None:
    text = refusal(project, STACK.replace("aws:region", key))
    assert f'Pulumi.dev.yaml:2: {key}: unknown key "{key}"' in text
    assert 'aws:region"' in text
    assert "is missing" not in text


def test_layers_are_written_beside_the_fleet_or_in_it(project: Path) -> None:
    separate = loaded(project, f"{STACK}  paddock:layers: {{images: acme/gpu/shared, runners: none}}\n").fleet
    inside = loaded(project, f"{STACK}    layers: {{images: acme/gpu/shared, runners: none}}\n").fleet
    assert separate == inside
    assert separate.layers.images == "acme/gpu/shared"
    assert [separate.holds(layer) for layer in ("images", "cluster", "runners")] == [False, True, False]


def test_a_long_stack_name_is_reported_where_it_counts(project: Path) -> None:
    (project / "Pulumi.yaml").write_text("name: a-project-with-a-name-of-more-than-30\n")
    text = refusal(project, STACK)
    assert "paddock:fleet.name" in text
    assert "at most 30" in text


def test_only_files_are_stacks(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.b.yaml").write_text("")
    (tmp_path / "Pulumi.a.yaml").write_text("")
    (tmp_path / "Pulumi.c.yaml").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("")
    assert stack_names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    "text", ["", "{", "[", "{}", "[]", "null", "5", '"x"', "[" * 100_000, '{"pools": 5}', "{1: 2}"]
)
def test_a_program_given_odd_text_gets_an_error_and_no_traceback(text: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse({"paddock:fleet": text, "aws:region": "us-west-2"}, "acme", "dev")
    assert all(problem.key[:2] == ("config", "paddock:fleet") for problem in caught.value.problems)


def test_every_message_points_into_the_file_even_with_no_such_key(project: Path) -> None:
    with pytest.raises(FleetError) as caught:
        loaded(project, "config:\n  aws:region: us-west-2\n  paddock:fleet:\n    pools: {}\n")
    assert [problem.line for problem in caught.value.problems] == [3, 4]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        "t4", "g4dn.xlarge", "p4d.24xlarge", "g5.xlarge", "spot", "on-demand", "none", "config", "any", "1.35", "1.34",
        "12Gi", "us-west-2a", "10.0.0.0/16", "0.0.0.0/0", "https://github.com/acme", "here", "dind", "0 8 * * *",
    ]
)  # fmt: skip
KEYS = [
    "github", "url", "app", "id", "installation", "key", "token", "network", "cidr", "zones", "privateSubnets", "nat",
    "cluster", "version", "endpoint", "allow", "access", "system", "instances", "nodes", "min", "max", "existing",
    "pools", "t4", "capacity", "reserved", "capacityBlock", "fallback", "sharing", "timeSlicing", "mig", "ami",
    "release", "custom", "disk", "size", "maxPods", "labels", "runners", "pool", "gpus", "cpu", "memory", "warm", "at",
    "container", "volumes", "scratch", "mount", "images", "push", "repository", "monitoring", "layers", "tags",
]  # fmt: skip
NEARLY = st.recursive(
    WORDS | st.integers(-3, 20) | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good fleet with some of its parts replaced, removed or added."""
    data: Any = yaml.safe_load(FLEET) | {"cluster": {"version": "1.35"}, "network": {"zones": 3}, "tags": {}}
    for _ in range(draw(st.integers(1, 3))):
        node = data
        while isinstance(node, dict) and node and draw(st.booleans()):
            inner = node[draw(st.sampled_from(sorted(node)))]
            if not isinstance(inner, dict):
                break
            node = inner
        if isinstance(node, dict):
            node[draw(st.sampled_from(sorted(node) + KEYS) | HOSTILE_TEXTS)] = draw(NEARLY | JSON | HOSTILE_TEXTS)
    return data


@examples(100, 1000, suppress_health_check=list(HealthCheck))
@given(mutated() | JSON | NEARLY)
def test_whatever_is_given_as_a_fleet_loads_or_is_refused(data: Any) -> None:
    try:
        parse({"paddock:fleet": go_json(data), "aws:region": "us-west-2"}, "acme", "dev")
    except FleetError as error:
        outcome = str(error)
    else:
        outcome = "loaded"
    assert outcome


TEXTS = [
    "", "a", "config", "{", "}", "[", "]", ":", "- ", "? ", "&a ", "*a", "!", "|", ">", "'", '"', "%", "@", "\n", "  ",
    "\t", "#", "~", "<<: ", "---\n", "...\n", "paddock:fleet:", "\u00e9", "\x00", "\ufeff", "{}",
]  # fmt: skip


@examples(100, 1000, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(TEXTS), max_size=14).map("".join) | st.text(max_size=30))
def test_whatever_stands_in_a_file_is_read_or_refused(text: str) -> None:
    files = {"Pulumi.dev.yaml"}
    try:
        Document("Pulumi.dev.yaml", text.encode("utf-8", "surrogatepass"))
    except FleetError as error:
        files = {problem.file for problem in error.problems}
    assert files == {"Pulumi.dev.yaml"}
