"""The real engine applies the program that the plan only reads: what `inv plan` shows is what `pulumi up` does.

Stand-ins take the place of the clouds. A stack that is applied and lives on is in `test_applied.py`, and runs that
break off are in `test_interrupted.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.fleet.stackfile.loader import load
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import LIMIT, ROOT, YES, Engine, Programs
from paddock.plan.engine.program import plan_graph
from paddock.pulumi_cli.stack import Operation
from tests.support.engine import differences, export, need_engine, previewed, short

pytestmark = pytest.mark.e2e

CREDENTIAL = "made-up-private-key-3f9c1d"
KEY = {"paddock:githubAppKey": CREDENTIAL}


@pytest.mark.parametrize(("stack", "kubernetes"), [("dev", "real"), ("prod", "stand-in")])
def test_a_preview_is_what_the_plan_shows(stack: str, kubernetes: str, programs: Programs, tmp_path: Path) -> None:
    real = kubernetes == "real"
    need_engine(kubernetes=real)
    held, folder = load(ROOT, stack), tmp_path / "charts"
    charts.serve(folder, charts.required_charts(plan_graph(held)), None)
    held = lab_stack.overlay(held, kubeconfig=tmp_path / "kubeconfig", charts=folder)
    engine = Engine(tmp_path, programs, stack=stack, real_kubernetes=real)
    engine.prepare(lab_stack.configuration(held), secret=KEY if stack == "dev" else None)

    text = engine.command("preview", "--json", seconds=LIMIT)

    states, planned = previewed(text), plan_graph(held, preview=True)
    assert set(states) == set(planned.resources)
    assert {operation for operation, _ in states.values()} == {"create"}
    assert list(differences(planned, {urn: state for urn, (_, state) in states.items()})) == []
    assert CREDENTIAL not in text


def test_an_upgrade_passes_through_older_nodes(programs: Programs, tmp_path: Path) -> None:
    held, folder = load(ROOT, "dev"), tmp_path / "charts"
    charts.serve(folder, charts.required_charts(plan_graph(held)), None)
    config = lab_stack.configuration(lab_stack.overlay(held, kubeconfig=tmp_path / "kubeconfig", charts=folder))
    fleet = config["paddock:fleet"]
    own = {"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.35"}
    engine = Engine(tmp_path, programs, stack="dev", real_kubernetes=False)

    def step(operation: Operation, minor: str, ami: dict[str, str], *words: str) -> dict[str, set[str]]:
        fleet["cluster"]["version"], fleet["pools"]["t4"]["ami"] = minor, ami
        engine.prepare(config, secret=None if engine.exists else KEY)
        changes = engine.run(operation, *words).changes
        return {short(urn): set(steps) - {"same", "refresh"} for urn, steps in changes.items() if "NodeGroup" in urn}

    assert step("up", "1.35", own, *YES)["NodeGroup::t4-spot"] == {"create"}
    assert step("up", "1.36", own, *YES) == {"NodeGroup::cluster-system": {"update"}}
    newer = own | {"custom": "ami-0123456789abcdef1", "kubernetes": "1.36"}
    assert step("preview", "1.36", newer) == {"NodeGroup::t4-spot": {"update"}}
    amazons = step("preview", "1.36", {"release": "1.36.2-20260714"})
    assert amazons == {"NodeGroup::t4-spot": {"create-replacement", "replace", "delete-replaced"}}


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


@pytest.fixture(scope="module")
def small(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Return a program of four resources, which are made; each test leaves four behind."""
    root = tmp_path_factory.mktemp("small") / "root"
    (root / "program").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: small\nruntime: {name: python}\nmain: program/\n")
    (root / "Pulumi.test.yaml").write_text("config: {}\n")
    (root / "program" / "__main__.py").write_text(PROGRAM)
    engine = Engine(root / "state", programs, stack="test", root=root)
    engine.prepare()
    engine.up()
    return engine


def cloud(engine: Engine) -> list[str]:
    """Return the resources that the stand-ins have created."""
    return sorted(map(short, engine.created_resources().values()))


@pytest.mark.xdist_group("small")
def test_what_was_changed_outside_is_found_and_put_back(small: Engine) -> None:
    store = json.loads(small.store.read_text())
    by_name = {short(resource["urn"]): key for key, resource in store["resources"].items()}
    store["resources"][by_name["Vpc::network"]]["state"]["tags"] = {"Name": "mine now"}
    del store["resources"][by_name["Subnet::private"]]
    small.store.write_text(json.dumps(store))

    refreshed, repaired = small.run("refresh", *YES), small.up()

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


@pytest.mark.xdist_group("small")
def test_what_must_be_made_anew_comes_before_the_old_one_goes(small: Engine) -> None:
    (before,) = [state for urn, state in export(small).items() if short(urn) == "Role::node"]
    small.configure({"small:path": "/nodes/"})

    operations_ = {short(urn): steps for urn, steps in small.up().changes.items()}

    (after,) = [state for urn, state in export(small).items() if short(urn) == "Role::node"]
    assert operations_["Role::node"] == ("create-replacement", "replace", "delete-replaced")
    assert operations_["InstanceProfile::node"] == ("update",)
    assert before.id != after.id
    assert cloud(small) == SMALL
