"""The real engine applies the program that the plan only reads: what `inv plan` shows is what `pulumi up` does.

Stand-ins take the place of the clouds. The stack is made once and changed step by step; every test looks at one step.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from paddock.fleet.loader import load
from paddock.lab.engine import ROOT, Engine, EngineError, Programs, Result, State
from paddock.lab.errors import LabInputError
from paddock.plan.run import plan_graph
from tests.support.engine import differences, is_default_provider, short

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("engine")]

CREDENTIAL = "made-up-private-key-3f9c1d"
KEY = {"paddock:githubAppKey": CREDENTIAL}
RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return Programs.find()
    except LabInputError as error:
        pytest.skip(str(error))


class Story:
    """One stack, dev, through its life. Each step runs once, after the one before it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.config: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
        self.told: list[str] = []
        engine.prepare(secret=KEY)

    @cached_property
    def first(self) -> Result:
        return self._run(self.engine.up)

    @cached_property
    def states(self) -> dict[str, State]:
        self._after(self.first)
        self.told.append(self.engine.exported())
        return self.engine.export()

    @cached_property
    def again(self) -> Result:
        self._after(self.states)
        return self._run(self.engine.up)

    @cached_property
    def refreshed(self) -> Result:
        self._after(self.again)
        return self._run(self.engine.refresh)

    @cached_property
    def pool_added(self) -> Result:
        self._after(self.refreshed)
        fleet = self.config["paddock:fleet"]
        fleet["pools"]["l4"] = {"instances": ["g6.xlarge"], "capacity": "on-demand", "nodes": {"max": 2}}
        fleet["runners"]["gpu-l4"] = {"pool": "l4", "max": 2}
        return self._change()

    @cached_property
    def relabelled(self) -> Result:
        self._after(self.pool_added)
        self.config["paddock:fleet"]["runners"]["gpu"]["labels"].append("cuda-12")
        return self._change()

    @cached_property
    def pinned(self) -> Result:
        self._after(self.relabelled)
        self.config["paddock:fleet"]["pools"]["l4"]["ami"] = {"release": "1.35.4-20260101"}
        return self._change()

    @cached_property
    def refused(self) -> str:
        """What the engine says to a destroy of things that are protected."""
        self._after(self.pinned)
        with pytest.raises(EngineError) as error:
            self.engine.destroy()
        return str(error.value)

    @cached_property
    def destroyed(self) -> Result:
        self._after(self.refused)
        self.config["paddock:fleet"]["cluster"]["deletionProtection"] = False
        self._change()
        return self._run(lambda: self.engine.destroy(protected=True))

    def _after(self, step: object) -> None:
        """Names the step that has to be over; asking for it runs it."""

    def _change(self) -> Result:
        self.engine.configure(self.config)
        return self._run(self.engine.up)

    def _run(self, operation: Callable[[], Result]) -> Result:
        result = operation()
        self.told.append(result.log)
        return result


@pytest.fixture(scope="session")
def story(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(Engine(tmp_path_factory.mktemp("lab"), programs, stack="dev"))


@pytest.mark.parametrize(("stack", "kubernetes"), [("dev", "stand-in"), ("dev", "real"), ("prod", "stand-in")])
def test_a_preview_is_what_the_plan_shows(stack: str, kubernetes: str, programs: Programs, tmp_path: Path) -> None:
    real = kubernetes == "real"
    if real and programs.kubernetes is None:
        pytest.skip("pulumi-resource-kubernetes is not there: pulumi plugin install resource kubernetes")
    engine = Engine(tmp_path, programs, stack=stack, real_kubernetes=real)
    engine.prepare(secret=KEY if stack == "dev" else None)

    previewed = engine.preview()

    planned = plan_graph(load(ROOT, stack), preview=True)
    assert set(previewed.states) == set(planned.resources)
    assert {step.operation for step in previewed.steps} == {"create"}
    assert list(differences(planned, previewed.states)) == []
    assert CREDENTIAL not in previewed.log


def test_up_makes_what_the_plan_shows(story: Story) -> None:
    planned = plan_graph(load(ROOT, "dev"))
    made = {urn: state for urn, state in story.states.items() if not is_default_provider(state)}

    assert set(made) == set(planned.resources)
    assert {step.operation for step in story.first.steps} == {"create"}
    assert list(differences(planned, made, values=False)) == []
    assert not [d for d in story.first.diagnostics if d.severity in ("error", "warning")]


def test_a_second_up_changes_nothing(story: Story) -> None:
    assert story.again.changes == {}


def test_a_refresh_finds_nothing(story: Story) -> None:
    assert story.refreshed.changes == {}


def test_a_new_pool_touches_no_other(story: Story) -> None:
    touched = {short(urn): set(done) for urn, done in story.pool_added.changes.items()}
    made = {name for name, done in touched.items() if done == {"create"}}

    assert {"NodeGroup::l4-on-demand", "LaunchTemplate::l4", "Release::gpu-l4"} <= made
    assert all("l4" in name for name in made)
    # The namespace's quota is the sum of its pools.
    assert {name: done for name, done in touched.items() if name not in made} == {
        "ResourceQuota::arc-arc-runners-quota": {"update"}
    }


def test_a_change_of_labels_replaces_one_scale_set(story: Story) -> None:
    touched = {short(urn): set(done) for urn, done in story.relabelled.changes.items()}

    assert set(touched) == {"Release::gpu"}
    assert {"create-replacement", "delete-replaced"} <= touched["Release::gpu"]


def test_another_image_rolls_one_pool(story: Story) -> None:
    assert {short(urn): done for urn, done in story.pinned.changes.items()} == {"NodeGroup::l4-on-demand": ("update",)}


def test_what_is_protected_stays(story: Story) -> None:
    assert "protect" in story.refused


def test_destroy_leaves_nothing(story: Story) -> None:
    assert story.destroyed.changes
    assert story.engine.export() == {}
    assert story.engine.store.exists()
    assert json.loads(story.engine.store.read_text())["resources"] == {}


def test_the_credential_is_told_to_nobody(story: Story) -> None:
    destroyed = story.destroyed
    hidden = [CREDENTIAL, base64.b64encode(CREDENTIAL.encode()).decode().rstrip("=")]

    assert story.told[-1] == destroyed.log
    assert len(story.told) == 9
    assert not [text[:80] for text in story.told for word in hidden if word in text]
    # Backend, history and backups, the stack file, what the stand-ins made.
    files = [path for path in story.engine.state.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.suffix == ".bak" or "history" in path.parts for path in files)
    assert not [path for path in files for word in hidden if word.encode() in path.read_bytes()]


PROGRAM = """
import pulumi
import pulumi_aws as aws

config = pulumi.Config("small")
cloud = pulumi.ResourceOptions(provider=aws.Provider("aws", region="us-west-2"))
vpc = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16", tags={"Name": "small"}, opts=cloud)
role = aws.iam.Role("node", path=config.get("path"), assume_role_policy="{}", opts=cloud)
aws.iam.InstanceProfile("node", role=role.name, opts=cloud)
aws.ec2.Subnet("private", vpc_id=vpc.id, cidr_block="10.0.0.0/24", opts=cloud)
"""
SMALL = ["InstanceProfile::node", "Role::node", "Subnet::private", "Vpc::network"]


@pytest.fixture
def small(programs: Programs, tmp_path: Path) -> Engine:
    """A program of four resources, for what the clouds do wrong."""
    root = tmp_path / "root"
    (root / "program").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: small\nruntime: {name: python}\nmain: program/\n")
    (root / "Pulumi.test.yaml").write_text("config: {}\n")
    (root / "program" / "__main__.py").write_text(PROGRAM)
    engine = Engine(tmp_path / "state", programs, stack="test", root=root)
    engine.prepare()
    return engine


def cloud(engine: Engine) -> list[str]:
    """What the stand-ins have made."""
    if not engine.store.exists():
        return []
    return sorted(short(kept["urn"]) for kept in json.loads(engine.store.read_text())["resources"].values())


def once_some_are_made(engine: Engine, action: Callable[[], None]) -> None:
    deadline = time.monotonic() + 60
    while "Role::node" not in cloud(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    action()


def test_after_an_error_of_the_cloud_the_next_up_makes_the_rest(small: Engine) -> None:
    small.faults = [{"resource": "*::private", "operation": "create", "error": "ThrottlingException: slow down"}]
    with pytest.raises(EngineError, match=r"private: .*ThrottlingException: slow down") as error:
        small.up()
    assert "Traceback" not in str(error.value)
    made = {short(urn) for urn in small.export()}
    small.faults = []

    resumed = small.up()

    assert resumed.changes[next(urn for urn in resumed.changes if short(urn) == "Subnet::private")] == ("create",)
    assert not [urn for urn in resumed.changes if short(urn) in made]
    assert cloud(small) == SMALL


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_after_a_run_that_broke_off_the_next_makes_the_rest_and_nothing_twice(how: str, small: Engine) -> None:
    small.faults = [{"resource": "*::network", "operation": "create", "delay": 6}]
    breaking = Thread(target=once_some_are_made, args=(small, small.kill if how == "killed" else small.interrupt))
    breaking.start()
    with pytest.raises(EngineError, match="killed" if how == "killed" else "cancel"):
        small.up()
    breaking.join()
    small.faults = []
    assert "Subnet::private" not in cloud(small)
    if how == "killed":
        with pytest.raises(EngineError, match="unlock"):
            small.up()
        small.unlock()

    small.up()

    assert cloud(small) == SMALL
    assert small.destroy().changes
    assert cloud(small) == []


def test_what_was_changed_outside_is_found_and_put_back(small: Engine) -> None:
    small.up()
    kept = json.loads(small.store.read_text())
    by_name = {short(one["urn"]): key for key, one in kept["resources"].items()}
    kept["resources"][by_name["Vpc::network"]]["state"]["tags"] = {"Name": "mine now"}
    del kept["resources"][by_name["Subnet::private"]]
    small.store.write_text(json.dumps(kept))

    found, repaired = small.refresh(), small.up()

    assert {short(urn): done for urn, done in found.changes.items()} == {
        "Vpc::network": ("update",),
        "Subnet::private": ("delete",),
    }
    assert {short(urn): done for urn, done in repaired.changes.items()} == {
        "Vpc::network": ("update",),
        "Subnet::private": ("create",),
    }
    assert cloud(small) == SMALL
    assert "mine now" not in small.store.read_text()


def test_what_must_be_made_anew_comes_before_the_old_one_goes(small: Engine) -> None:
    small.up()
    (before,) = [state for urn, state in small.export().items() if short(urn) == "Role::node"]
    small.configure({"small:path": "/nodes/"})

    done = {short(urn): steps for urn, steps in small.up().changes.items()}

    (after,) = [state for urn, state in small.export().items() if short(urn) == "Role::node"]
    assert done["Role::node"] == ("create-replacement", "replace", "delete-replaced")
    assert done["InstanceProfile::node"] == ("update",)
    assert before.id != after.id
    assert cloud(small) == SMALL
