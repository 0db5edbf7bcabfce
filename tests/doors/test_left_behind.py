"""`destroy` in accounts where AWS, controllers and other services left something, and held something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra import versions
from paddock.init.permissions import table
from paddock.pulumi_cli.events import Diagnostic
from paddock.pulumi_cli.stack import Resource
from tests.support import aws_server
from tests.support.aws_account import NUMBER, REGION
from tests.support.aws_server import AwsServer
from tests.support.engine_stand_in import CLUSTER, StandInForPulumi
from tests.support.left_behind import LeftBehind
from tests.support.on_terminal import CTRL_C, on_terminal
from tests.support.operation import Operation

MOTO = "AWS of moto over HTTP, a Kubernetes API, and a program in the place of Pulumi"
FLEET = "paddock-dev"
VPC = "urn:pulumi:dev::paddock::paddock:infra:Network$aws:ec2/vpc:Vpc::network-vpc"
SUBNET = "urn:pulumi:dev::paddock::paddock:infra:Network$aws:ec2/subnet:Subnet::network-private-us-west-2a"
CTRL_D = "\x04"
BUILDS: dict[str, aws_server.Answer] = {"imagebuilder/ListImages": lambda asked: {"imageVersionList": []}}


class Account:
    """An account in moto, the door to `destroy`, and the engine's state."""

    def __init__(self, operation: Operation, served: AwsServer) -> None:
        self.operation, self.served = operation, served
        self.left = LeftBehind(FLEET, REGION)
        self.engine: StandInForPulumi = operation.engine(versions.ARC)
        self.engine.changed = self._changed
        role = f"arn:aws:iam::{NUMBER}:role/cluster"
        self.eks = boto3.client("eks", REGION)
        self.eks.create_cluster(name=FLEET, roleArn=role, resourcesVpcConfig={"subnetIds": self.left.subnets})
        operation.env |= served.env
        world = operation.cluster().world
        world.no_runner()
        # Without ARC's objects nothing has to sign off at GitHub.
        world.objects[:] = [one for one in world.objects if "actions.github.com" not in one["apiVersion"]]
        self.engine.held += [
            Resource(VPC, "aws:ec2/vpc:Vpc", self.left.vpc),
            Resource(SUBNET, "aws:ec2/subnet:Subnet", self.left.subnets[0]),
        ]

    def _changed(self, name: str, urns: list[str]) -> None:
        if CLUSTER in urns:
            self.eks.delete_cluster(name=FLEET)

    def __call__(self, *words: str) -> dict[str, Any]:
        completed = self.operation("destroy", *words, "--json")
        assert completed.stdout, completed.stderr
        report: dict[str, Any] = json.loads(completed.stdout)
        return {**report, "code": completed.returncode}

    def screen(self, *words: str) -> str:
        return str(self.operation("destroy", *words).stdout)


@pytest.fixture
def account(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with mock_aws(), aws_server.serve(BUILDS) as served:
        yield Account(operation, served)


@pytest.mark.door("destroy", MOTO)
def test_what_is_left_is_named_once_with_price_and_command(account: Account) -> None:
    report = account("--yes", "--with-protected")
    assert report["unknown"] == []
    left = report["left"]
    assert len(account.left.things) >= 15
    for what, own in account.left.things.items():
        named = [item for item in left if item["what"].endswith(own)]
        assert len(named) == 1, (what, own, [item["what"] for item in left])
        assert named[0]["removal"], what
        assert named[0]["cost"], what
    for what, own in account.left.others.items():
        assert not [item for item in left if own in json.dumps(item)], what
    allowed = {action for row in table.of_commands() if row.type == "destroy" for action in row.both}
    assert account.served.actions - allowed == set()


@pytest.mark.door("destroy", MOTO)
def test_plan_names_what_the_removal_would_leave(account: Account) -> None:
    report = account("--dry-run")
    said = " ".join(item["what"] for item in report["left"])
    assert {phase["state"] for phase in report["phases"]} == {"planned"}
    for what in ("volume of a claim", "endpoint of GuardDuty", "log group of EKS", "network load balancer"):
        assert account.left.things[what] in said, what
    # What goes with node groups and cluster, and what the state has.
    for what in ("instance", "launch template", "group of EKS", "interface of the CNI"):
        assert account.left.things[what] not in said, what
    assert account.left.vpc not in said
    assert account.engine.runs == []


@pytest.mark.door("destroy", MOTO)
def test_what_a_lost_state_made_is_named(account: Account) -> None:
    account.engine.held.clear()
    account.left.ec2.create_tags(Resources=[account.left.vpc], Tags=[{"Key": "paddock:fleet", "Value": FLEET}])
    report = account("--yes")
    said = " ".join(item["what"] for item in report["left"])
    assert report["phases"] == []
    for what, own in {**account.left.things, "cluster": f"cluster/{FLEET}"}.items():
        assert own in said or what == "cluster", what


@pytest.mark.door("destroy", MOTO)
def test_what_holds_a_subnet_is_named_with_its_command(account: Account) -> None:
    subnet, endpoint = account.left.subnets[0], account.left.endpoint
    words = (
        f"deleting urn:...: 1 error occurred:\n\t* deleting EC2 Subnet ({subnet}): operation error EC2: DeleteSubnet, "
        "https response error StatusCode: 400, RequestID: 1, api error DependencyViolation: The subnet "
        f"'{subnet}' has dependencies and cannot be deleted."
    )
    account.engine.fails, account.engine.refused = "destroy", (Diagnostic("error", words, SUBNET),)
    report = account("--yes", "--with-protected")
    failed = report["phases"][-1]
    assert (report["code"], failed["state"]) == (1, "failed")
    held = next(line for line in failed["details"] if endpoint in line)
    assert held.startswith(f"{subnet} is held by vpc-endpoint {endpoint}")
    assert "guardduty-data" in held
    assert "made by GuardDuty" in held
    group = account.left.things["group of GuardDuty"]
    first, second = f"delete-vpc-endpoints --vpc-endpoint-ids {endpoint}", f"delete-security-group --group-id {group}"
    assert 0 <= failed["fix"].find(first) < failed["fix"].find(second)
    assert failed["fix"].endswith("then the same command goes on")
    account.engine.fails = ""
    assert account("--yes", "--with-protected")["phases"][-1]["state"] == "done"


@pytest.mark.door("destroy", MOTO)
def test_unreadable_holder_is_unknown_with_its_permission(account: Account) -> None:
    words = "api error DependencyViolation: resource sg-0123456789abcdef0 has a dependent object"
    account.engine.fails, account.engine.refused = "destroy", (Diagnostic("error", words),)
    account.served.refused.add("ec2/DescribeNetworkInterfaces")
    report = account("--yes")
    failed = report["phases"][-1]
    assert any("unknown who holds sg-0123456789abcdef0" in line for line in failed["details"])
    assert any("missing: ec2:DescribeNetworkInterfaces" in line for line in (*failed["details"], *report["unknown"]))
    assert "destroy --stack dev says who" in failed["fix"]
    assert "is left: AWS was asked" not in account.screen("--dry-run")


@pytest.mark.door("destroy", MOTO)
@pytest.mark.parametrize("key", [CTRL_C, CTRL_D], ids=["ctrl-c", "ctrl-d"])
def test_question_that_is_not_answered_changes_nothing(account: Account, key: str) -> None:
    words = ("destroy", *account.operation.flags)
    code, screen = on_terminal(account.operation.inv, *words, env=account.operation.env, typed=[key])
    assert "Type the stack's name, dev, to remove it:" in screen
    assert "Traceback" not in screen
    assert code == 130, screen
    assert account.engine.runs == []
    assert account("--yes")["phases"][-1]["state"] == "done"
