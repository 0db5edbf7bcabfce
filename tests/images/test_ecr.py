"""Logging in to Amazon's registry, with moto and with the answers of the real API's model; docker is a stand-in."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.images.ami_components import ecr_repository
from paddock.aws.errors import AwsError, NotSignedIn
from paddock.fleet import Mirror
from paddock.images import ecr
from paddock.images.docker import Docker
from paddock.images.errors import BuildInputError
from tests.support.docker import StandIn, stand_in

REGISTRY = "123456789012.dkr.ecr.us-west-2.amazonaws.com"


@pytest.fixture
def program(tmp_path: Path) -> StandIn:
    return stand_in(
        tmp_path / "bin",
        f"""
        if argv[0].endswith("version"):
            print("Docker version 20.10.24, build 1")
        elif argv[:1] == ["login"]:
            open({str(tmp_path / "given")!r}, "w").write(sys.stdin.read())
        else:
            sys.exit(1)
        """,
    )


@pytest.fixture
def docker(program: StandIn, tmp_path: Path) -> Docker:
    return Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not a key")


def refusing(code: str, message: str) -> Any:
    client = boto3.client("ecr", "us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    stub = Stubber(client)
    stub.add_client_error("get_authorization_token", code, message, 400)
    stub.activate()
    return lambda *_: client


@pytest.mark.parametrize(("registry", "region"), [
    (REGISTRY, "us-west-2"),
    ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
    ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ("123456789012.dkr-ecr.us-west-2.on.aws", "us-west-2"),
    ("123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn", "cn-north-1"),
    ("public.ecr.aws", ""),
    ("localhost:5000", ""),
    (f"x{REGISTRY}", ""),
    (f"{REGISTRY}.evil.example", ""),
    (f"{REGISTRY}:443", ""),
])  # fmt: skip
def test_which_registries_take_a_token_of_aws_is_one_fact(registry: str, region: str, root: Path) -> None:
    image = f"{registry}/acme/runner-gpu@sha256:{'4' * 64}"
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
    arn = f"arn:{partition}:ecr:{region}:123456789012:repository/acme/runner-gpu"
    (pattern,) = re.findall("^ecr='(.*)'$", (root / "ami/scripts/runner-image.sh").read_text(), re.MULTILINE)
    script = ["bash", "-c", 'if [[ $1 =~ $2 ]]; then printf %s "${BASH_REMATCH[2]}"; fi', "bash", registry, pattern]

    assert ecr.is_ecr(registry) is bool(region)
    assert Mirror(images="registry.example.com").holds(image) is bool(region)
    assert (Mirror(images="registry.example.com").image(image) == image) is bool(region)
    assert ecr_repository(image) == (arn if region else None)
    assert subprocess.run(script, capture_output=True, text=True, check=True).stdout == region


@mock_aws
def test_the_token_of_moto_reaches_docker_on_its_input_alone(
    docker: Docker, program: StandIn, tmp_path: Path, credentials: None
) -> None:
    ecr.login(docker, ecr.account_registry("us-west-2"))

    token = (tmp_path / "given").read_text()
    (login,) = (call["argv"] for call in program.calls() if call["argv"][0] == "login")
    assert login == ["login", "--username", "AWS", "--password-stdin", REGISTRY]
    assert token
    assert token not in json.dumps(program.calls())


@pytest.mark.parametrize(("code", "message", "words", "exit_code"), [
    ("ExpiredTokenException", "The security token included in the request is expired", "have expired", 2),
    ("UnrecognizedClientException", "The security token is invalid", "does not know these credentials", 2),
    ("AccessDeniedException", "User: ci is not authorized", "allow ecr:GetAuthorizationToken to this role", 1),
])  # fmt: skip
def test_a_refusal_of_aws_is_one_sentence_and_a_fix(
    docker: Docker, code: str, message: str, words: str, exit_code: int
) -> None:
    with pytest.raises(AwsError) as error:
        ecr.login(docker, REGISTRY, refusing(code, message))

    assert words in str(error.value)
    assert "fix: " in str(error.value)
    assert error.value.exit_code == exit_code


def test_missing_credentials_are_reported_without_a_call(docker: Docker) -> None:
    with pytest.raises(NotSignedIn, match="no credentials for AWS"):
        ecr.login(docker, REGISTRY)


def test_an_unknown_region_is_reported_with_the_nearest_name(credentials: None) -> None:
    with pytest.raises(BuildInputError, match=r"us_west_2.*\n(.*\n)*.*did you mean us-west-2\?"):
        ecr.account_registry("us_west_2")


def test_another_registry_has_another_login(docker: Docker) -> None:
    with pytest.raises(BuildInputError, match="docker login localhost:5000"):
        ecr.login(docker, "localhost:5000")
