"""The doctor against moto, which implements a part of AWS: requests that it parses, and answers that it composes."""

from __future__ import annotations

import re
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from paddock import clock
from paddock.fleet import load
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import examine
from paddock.operate.sources.aws import AwsReader
from tests.operate.conftest import Examined
from tests.support.aws_account import NUMBER, REGION, Account

DIGEST = f"sha256:{'4' * 64}"


@pytest.fixture
def examined(project: Path, programs: Path, address: None, monkeypatch: pytest.MonkeyPatch) -> Examined:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    file = project / "Pulumi.dev.yaml"
    image = f"{NUMBER}.dkr.ecr.{REGION}.amazonaws.com/runner-gpu@{DIGEST}"
    file.write_text(file.read_text().replace("    pools:\n", f'    images: {{runner: "{image}"}}\n    pools:\n'))
    with mock_aws():
        ec2 = boto3.client("ec2", REGION)
        tags = [{"ResourceType": "vpc", "Tags": [{"Key": "paddock:fleet", "Value": "paddock-dev"}]}]
        ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)
        ec2.allocate_address(Domain="vpc")
        context = Context(project, load(project, "dev"), clock.today(), AwsReader(REGION))
        return Examined(examine(context), Account({}))


def test_answers_of_moto_are_read(examined: Examined) -> None:
    assert examined.report.account == NUMBER
    assert examined.line("account", "credentials").status == "pass"
    # moto carries out the dry run of a VPC, which may be before or after the count.
    assert re.search(r"used [23] \([12] by this fleet\)", examined.line("quotas", "L-F678F1CE").message)
    assert "as if it were not a dry run" in examined.line("permissions", "EC2 dry runs").message
    assert examined.line("capacity", "pools.t4 offered").status == "pass"
    assert "USD an hour" in examined.line("capacity", "spot price").message
    assert examined.line("software", "pools.t4 image").status == "fail"
    assert "RepositoryNotFoundException" in examined.line("software", "images.runner").message
    defects = [r.message for r in examined.report.results if "a defect of this check" in r.message]
    assert [message for message in defects if "NotImplementedError" not in message] == [], "what moto lacks raises that"
