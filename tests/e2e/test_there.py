"""A thing that is there before the first `up`: the doctor's command hands it to the stack, on the real engine."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock import clock
from paddock.fleet import load
from paddock.lab.providers.store import Store
from paddock.lab.stack.engine import ROOT, YES, Engine
from paddock.operate.doctor.checks import there
from paddock.operate.doctor.context import Context
from paddock.operate.sources.aws import AwsReader
from paddock.plan.engine import resource_types as types
from tests.support import fleets
from tests.support.aws_account import REGION, Account, healthy
from tests.support.engine import export, need_engine

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("stacks")]
TYPE = types.OPEN_ID_CONNECT_PROVIDER
PROVIDER = "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("infra", "runners", "ami"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    return tmp_path


def engine(folder: Path, name: str) -> Engine:
    """Return a stack with the images of a fleet alone, and with GitHub's provider."""
    parts: dict[str, Any] = fleets.fleet_data(
        name="paddock-one", images={"repositories": ["runner-gpu"], "push": {"repository": "pytorch/images"}}
    )
    layers = {"images": "here", "cluster": "none", "runners": "none"}
    config = {"aws:region": REGION, "paddock:fleet": parts, "paddock:layers": layers}
    (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": config}))
    made = Engine(folder / "state", need_engine(), stack=name, root=folder)
    made.prepare()
    return made


def test_import_of_the_doctor_lets_up_end_and_makes_nothing_twice(project: Path) -> None:
    other, own = engine(project, "other"), engine(project, "own")
    other.up()
    (made,) = (state for key, state in Store(other.store).resources().items() if key.startswith(TYPE))
    with Store(own.store).change() as resources:
        resources[f"{TYPE} {PROVIDER}"] = made

    account = Account(
        {**healthy(), "iam.ListOpenIDConnectProviders": {"OpenIDConnectProviderList": [{"Arn": PROVIDER}]}}
    )
    context = Context(project, load(project, "own"), clock.today(), AwsReader(REGION, account.clients))
    context.shared.get("state", lambda: ())
    (kind,) = (kind for kind in there.KINDS if kind.type == TYPE)
    (line,) = there.names(kind)(context)
    first, second = (shlex.split(part) for part in line.fix.partition("alone: ")[2].split(" && "))
    assert first[:4] == ["pulumi", "up", "--stack", "own"]
    own.run("up", *YES, *first[4:])
    own.command(*second[1:], "--yes")

    urn = f"urn:pulumi:own::paddock::paddock:infra:ImagePush${TYPE}::image-push"
    assert own.up().changes.get(urn, ("update",)) == ("update",), "it is not made again"
    assert export(own)[urn].id == PROVIDER


def test_provider_outlives_the_stack_that_made_it(project: Path) -> None:
    own = engine(project, "own")
    own.up()
    made = [key for key in own.created_resources() if key.startswith(TYPE)]
    config = yaml.safe_load(own.stack_file.read_text())["config"]
    config["paddock:fleet"]["images"]["push"]["provider"] = PROVIDER
    own.configure(config)
    own.up()
    assert [key for key in own.created_resources() if key.startswith(TYPE)] == made
