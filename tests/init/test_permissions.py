"""`inv init.permissions`: policies that AWS takes, with a permission for every resource, and names in them."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path

import boto3
import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.init.permissions import table
from paddock.init.permissions.command import PermissionsParameters, permissions
from paddock.init.permissions.policy import (
    LARGEST,
    MOST_POLICIES,
    NoRow,
    Statement,
    of_commands,
    policies,
    size,
    statements,
)
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph
from paddock.plan.rules.iam import NamedResources, NoAdministrators
from tests.plan.rules.breaking import example, resource
from tests.support import fleets
from tests.support.explore import examples
from tests.support.fleets import graph
from tests.support.performing import performed

NOT_OPERATIONS = {"iam:PassRole", "s3:ListBucketVersions"}
"""Rights that belong to no call of their own name."""
CLIENTS = {"elasticloadbalancing": "elbv2", "servicequotas": "service-quotas", "tag": "resourcegroupstaggingapi"}
"""Names of services for botocore, where IAM has others."""
ACTIONS = {action for row in (*table.rows().values(), *table.of_commands()) for action in row.both}
SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:github-app"
COMMANDS = sorted({row.type for row in table.of_commands()})


@pytest.mark.parametrize("name", fleets.ALL)
def test_policies_are_small_enough_and_name_what_they_can(name: str) -> None:
    parts = statements(graph(name), fleets.named(name).fleet.region)
    documents = policies(parts)

    assert max(map(size, documents), default=0) <= LARGEST
    assert len(documents) <= MOST_POLICIES
    assert all(part.actions and part.resources for part in parts)
    # The rules that every role of the fleet is held to: PassRole names its role, and what writes names its resource.
    written = example(*(resource(types.ROLE_POLICY, "policy", {"policy": json.dumps(d)}) for d in documents))
    assert [
        violation.message for rule in (NoAdministrators(), NamedResources()) for violation in rule.check(written)
    ] == []


def test_every_row_is_of_a_type_that_some_fleet_has() -> None:
    resources = {r.type for name in fleets.ALL for r in graph(name).resources.values() if r.custom}
    lookups = {token for name in fleets.ALL for token, _ in graph(name).lookups}
    assert set(table.rows()) - resources - lookups == set()


def test_a_type_without_a_row_is_an_error() -> None:
    item = resource("aws:sqs/queue:Queue", "queue")
    unknown = Graph("paddock", "dev", {item.urn: item}, {}, ())
    with pytest.raises(NoRow, match=r"no row of aws:sqs/queue:Queue"):
        statements(unknown, "us-west-2")


@pytest.mark.parametrize("service", sorted({action.partition(":")[0] for action in ACTIONS}))
def test_every_action_is_an_operation_of_its_service(service: str) -> None:
    model = botocore.session.get_session().get_service_model(CLIENTS.get(service, service))
    operations = {name.lower() for name in model.operation_names}  # IAM does not look at case
    actions = {action for action in ACTIONS - NOT_OPERATIONS if action.startswith(f"{service}:")}
    assert {action for action in actions if action.partition(":")[2].lower() not in operations} == set()


@mock_aws
@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_iam_takes_the_policies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made-up")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    iam = boto3.client("iam", region_name="us-west-2")
    for number, policy in enumerate(policies(statements(graph(name), "us-west-2"))):
        iam.create_policy(PolicyName=f"{name}-{number}", PolicyDocument=json.dumps(policy))
    broken = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2", "Resource": "*"}]})
    with pytest.raises(iam.exceptions.MalformedPolicyDocumentException):
        iam.create_policy(PolicyName="broken", PolicyDocument=broken)


def test_roles_of_the_plan_may_be_made_and_passed_and_no_others() -> None:
    (part,) = (part for part in statements(graph("prod"), "us-west-2") if "iam:PassRole" in part.actions)
    roles = [f"arn:aws:iam::123456789012:role/{r.name}-1a2b3c4" for r in graph("prod").of_type(types.ROLE)]
    others = ["arn:aws:iam::123456789012:role/Administrator", "arn:aws:iam::123456789012:role/node"]
    allowed = [arn for arn in (*roles, *others) if any(fnmatch.fnmatchcase(arn, p) for p in part.resources)]
    assert allowed == roles


def test_a_log_group_named_after_a_made_up_name_is_found_by_its_beginning() -> None:
    (part,) = (part for part in statements(graph("prod"), "us-west-2") if "logs:CreateLogGroup" in part.actions)
    group = "arn:aws:logs:us-west-2:123456789012:log-group:/aws/imagebuilder/gpu-ami-recipe-1a2b3c4"
    assert any(fnmatch.fnmatchcase(group, pattern) for pattern in part.resources)


@examples(25, 100)
@given(
    st.lists(
        st.builds(
            Statement,
            st.lists(st.integers(0, 999).map("ec2:Action{}".format), min_size=1, max_size=150, unique=True).map(tuple),
            st.lists(st.integers(0, 9999).map("arn:aws:ecr:us-west-2:*:repository/{}".format), min_size=1, max_size=150,
                     unique=True).map(tuple),
        ),
        max_size=6,
    )
)  # fmt: skip
def test_splitting_loses_no_right_and_adds_none(parts: list[Statement]) -> None:
    documents = policies(parts)
    assert all(size(document) <= LARGEST for document in documents)
    rights = {(a, r) for d in documents for s in d["Statement"] for a in s["Action"] for r in s["Resource"]}
    assert rights == {(a, r) for part in parts for a in part.actions for r in part.resources}


def test_the_files_are_the_policies_and_the_commands_name_them(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    performed(permissions, root, PermissionsParameters(stack="prod", write=tmp_path / "policies"))
    printed = capsys.readouterr().out
    performed(permissions, root, PermissionsParameters(stack="prod", json=PRINTED_JSON))
    document = json.loads(capsys.readouterr().out)

    assert document["commands"] == []  # no file was written for them
    for policy in document["policies"]:
        file = tmp_path / "policies" / f"{policy['name']}.json"
        assert json.loads(file.read_text()) == policy["document"]
        assert f"--policy-document file://{file}" in printed


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_may_read_alone(command: str) -> None:
    parts = of_commands([command], fleets.named("prod").fleet)
    written = example(*(resource(types.ROLE_POLICY, "policy", {"policy": json.dumps(d)}) for d in policies(parts)))
    assert [v.message for rule in (NoAdministrators(), NamedResources()) for v in rule.check(written)] == []
    changing = {
        action
        for part in parts
        for action in part.actions
        if not action.partition(":")[2].startswith(("Describe", "Get", "List", "Simulate"))
    }
    assert bool(changing) == (command in ("ami.build", "ami.prune"))


@pytest.mark.parametrize(("source", "secrets"), [("config", ()), (SECRET, (SECRET,))])
def test_the_doctor_reads_the_app_s_key_where_it_is_kept(source: str, secrets: tuple[str, ...]) -> None:
    github = {"url": "https://github.com/acme", "app": {"id": "1", "installation": "2", "key": source}}
    fleet = fleets.stack(fleets.fleet_data(github=github)).fleet
    parts = of_commands(["doctor"], fleet)
    assert [part.resources for part in parts if "secretsmanager:GetSecretValue" in part.actions] == [secrets][
        : len(secrets)
    ]


def test_commands_get_policies_of_their_own_name(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "policies"
    performed(permissions, root, PermissionsParameters(write=folder))
    performed(permissions, root, PermissionsParameters(commands=("up", "ami.prune"), write=folder))
    names = {path.name for path in folder.iterdir()}
    assert {"paddock-dev-1.json", "paddock-dev-up-ami-prune-1.json"} <= names
    assert "pulumi up, ami.prune of paddock-dev takes" in capsys.readouterr().out
    with pytest.raises(BadFlag, match=r"--for: destory is not a command that asks AWS\n.*did you mean destroy\?"):
        performed(permissions, root, PermissionsParameters(commands=("destory",)))


def test_files_of_an_earlier_larger_plan_are_removed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my policies"
    folder.mkdir()
    others = [
        "paddock-dev-eu-9.json",
        "paddock-dev-9-1.json",
        "paddock-dev-09.json",
        "paddock-dev-9.json.bak",
        "9.json",
    ]
    for name in (*others, "paddock-dev-9.json", "paddock-dev-10.json"):
        (folder / name).touch()
    performed(permissions, root, PermissionsParameters(write=folder))
    printed = capsys.readouterr().out

    assert {path.name for path in folder.iterdir()} == {*others, "paddock-dev-1.json"}
    assert "Removed from" in printed
    assert f"--policy-document 'file://{folder}/paddock-dev-1.json'" in printed
