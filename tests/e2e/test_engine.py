"""The real engine applies the program that the plan only reads: what `inv plan` shows is what `pulumi up` does.

Stand-ins take the place of the clouds. A stack that is applied and lives on is in `test_applied.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from paddock.fleet.stackfile.loader import load
from paddock.lab.errors import LabInputError
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import ROOT, Engine, EngineError, Programs
from paddock.plan.engine.program import plan_graph
from tests.support.engine import differences, short

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("engine")]

CREDENTIAL = "made-up-private-key-3f9c1d"
KEY = {"paddock:githubAppKey": CREDENTIAL}


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return Programs.find()
    except LabInputError as error:
        pytest.skip(f"the lab's programs are not here: {error}")


@pytest.mark.parametrize(("stack", "kubernetes"), [("dev", "stand-in"), ("dev", "real"), ("prod", "stand-in")])
def test_a_preview_is_what_the_plan_shows(stack: str, kubernetes: str, programs: Programs, tmp_path: Path) -> None:
    real = kubernetes == "real"
    if real and programs.kubernetes is None:
        pytest.skip("pulumi-resource-kubernetes is not there: pulumi plugin install resource kubernetes")
    held, folder = load(ROOT, stack), tmp_path / "charts"
    charts.serve(folder, charts.required_charts(plan_graph(held)), None)
    held = lab_stack.overlay(held, kubeconfig=tmp_path / "kubeconfig", charts=folder)
    engine = Engine(tmp_path, programs, stack=stack, real_kubernetes=real)
    engine.prepare(lab_stack.configuration(held), secret=KEY if stack == "dev" else None)

    previewed = engine.preview()

    planned = plan_graph(held, preview=True)
    assert set(previewed.states) == set(planned.resources)
    assert {step.operation for step in previewed.steps} == {"create"}
    assert list(differences(planned, previewed.states)) == []
    assert CREDENTIAL not in previewed.log


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
    """Return a program of four resources, for faults of the clouds."""
    root = tmp_path / "root"
    (root / "program").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: small\nruntime: {name: python}\nmain: program/\n")
    (root / "Pulumi.test.yaml").write_text("config: {}\n")
    (root / "program" / "__main__.py").write_text(PROGRAM)
    engine = Engine(tmp_path / "state", programs, stack="test", root=root)
    engine.prepare()
    return engine


def cloud(engine: Engine) -> list[str]:
    """Return the resources that the stand-ins have created."""
    if not engine.store.exists():
        return []
    return sorted(short(stored["urn"]) for stored in json.loads(engine.store.read_text())["resources"].values())


def once_some_are_made(engine: Engine, action: Callable[[], None]) -> None:
    """And written down: what is under way when the engine is killed would be made again."""
    deadline = time.monotonic() + 60
    while not {"Role::node", "InstanceProfile::node"} <= recorded(engine):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    action()


def recorded(engine: Engine) -> set[str]:
    """Return the resources that a run in progress has recorded; the engine answers no other request meanwhile."""
    files = [*engine.state.glob("backend/.pulumi/stacks/*/*.json")]
    latest = [json.loads(file.read_text())["checkpoint"]["latest"] or {} for file in files]
    return {short(resource["urn"]) for state in latest for resource in state.get("resources", [])}


def test_the_next_up_after_a_cloud_error_creates_the_rest(small: Engine) -> None:
    small.faults = [{"resource": "*::private", "operation": "create", "error": "ThrottlingException: slow down"}]
    with pytest.raises(EngineError, match=r"private: .*ThrottlingException: slow down") as error:
        small.up()
    assert "Traceback" not in str(error.value)
    created = {short(urn) for urn in small.export()}
    small.faults = []

    resumed = small.up()

    assert resumed.changes[next(urn for urn in resumed.changes if short(urn) == "Subnet::private")] == ("create",)
    assert not [urn for urn in resumed.changes if short(urn) in created]
    assert cloud(small) == SMALL


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_the_next_run_after_an_abort_creates_nothing_twice(how: str, small: Engine) -> None:
    small.faults = [{"resource": "*::network", "operation": "create", "delay": 60 if how == "killed" else 25}]
    breaking = Thread(target=once_some_are_made, args=(small, small.kill if how == "killed" else small.interrupt))
    breaking.start()
    with pytest.raises(EngineError, match="killed" if how == "killed" else "cancel"):
        small.up()
    breaking.join()
    small.faults = []
    assert "Subnet::private" not in cloud(small)
    if how == "killed":
        with pytest.raises(EngineError, match="locked"):
            small.up()
        small.unlock()

    small.up()

    assert cloud(small) == SMALL
    assert small.destroy().changes
    assert cloud(small) == []


def test_what_was_changed_outside_is_found_and_put_back(small: Engine) -> None:
    small.up()
    store = json.loads(small.store.read_text())
    by_name = {short(resource["urn"]): key for key, resource in store["resources"].items()}
    store["resources"][by_name["Vpc::network"]]["state"]["tags"] = {"Name": "mine now"}
    del store["resources"][by_name["Subnet::private"]]
    small.store.write_text(json.dumps(store))

    refreshed, repaired = small.refresh(), small.up()

    assert {short(urn): operations for urn, operations in refreshed.changes.items()} == {
        "Vpc::network": ("update",),
        "Subnet::private": ("delete",),
    }
    assert {short(urn): operations for urn, operations in repaired.changes.items()} == {
        "Vpc::network": ("update",),
        "Subnet::private": ("create",),
    }
    assert cloud(small) == SMALL
    assert "mine now" not in small.store.read_text()


def test_what_must_be_made_anew_comes_before_the_old_one_goes(small: Engine) -> None:
    small.up()
    (before,) = [state for urn, state in small.export().items() if short(urn) == "Role::node"]
    small.configure({"small:path": "/nodes/"})

    operations_ = {short(urn): steps for urn, steps in small.up().changes.items()}

    (after,) = [state for urn, state in small.export().items() if short(urn) == "Role::node"]
    assert operations_["Role::node"] == ("create-replacement", "replace", "delete-replaced")
    assert operations_["InstanceProfile::node"] == ("update",)
    assert before.id != after.id
    assert cloud(small) == SMALL
