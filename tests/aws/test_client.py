"""Refusals of AWS are sentences with a next step, and nothing that changes AWS is sent twice."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.stub import Stubber

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError, NotSignedIn
from tests.support.http_server import Handler, serving

REGION = "us-west-2"


@pytest.mark.parametrize(("code", "exit_code", "message"), [
    ("ExpiredToken", 2, "the credentials for AWS have expired: words\n    expected: .*\n    fix: sign in again"),
    (
        "UnrecognizedClientException",
        2,
        "does not know these credentials in us-west-2: words .*\n    expected: .*\n    fix: enable the",
    ),
    (
        "UnauthorizedOperation",
        1,
        "denies ec2:DescribeImages in us-west-2: words\n    expected: .*\n    fix: allow ec2:DescribeImages",
    ),
    (
        "RequestExpired",
        2,
        r"because of its time: words \(RequestExpired\)\n    expected: credentials .* clock .*\n"
        r"    fix: sign in again .*; else set the clock",
    ),
    ("RequestInTheFuture", 2, r"words \(RequestInTheFuture\)\n    expected: .* clock .*\n    fix: set the clock"),
    ("RequestLimitExceeded", 1, "throttles ec2:DescribeImages: .*\n    fix: run it again"),
    (
        "InvalidParameterValue",
        1,
        r"refused ec2:DescribeImages in us-west-2: words \(InvalidParameterValue\)\n    fix: correct what",
    ),
    ("InternalError", 1, r"words \(InternalError\)\n    fix: run it again in a minute"),
    ("503", 1, r"words \(503\)\n    fix: run it again in a minute"),
])  # fmt: skip
def test_a_refusal_is_a_sentence(code: str, exit_code: int, message: str) -> None:
    client = boto3.client("ec2", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none")
    with Stubber(client) as stub:
        stub.add_client_error("describe_images", code, "words. Encoded authorization failure message: dGhpcyBpcyBsb25n")
        with pytest.raises(AwsError, match=message) as raised:
            list(Aws(REGION, lambda *_: client).pages("ec2", "describe_images", "Images"))
    assert raised.value.exit_code == exit_code
    assert "dGhpcyBpcyBsb25n" not in str(raised.value)


def test_without_credentials_it_says_where_they_come_from() -> None:
    with pytest.raises(NotSignedIn, match=r"no credentials for AWS: .*\n    expected: .*\n    fix: aws sso login"):
        Aws(REGION).ask("ec2", "describe_images")


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "wokr")
    with pytest.raises(NotSignedIn, match=r"no credentials for AWS: .*wokr"):
        Aws(REGION).ask("ec2", "describe_images")


def test_a_malformed_region_says_where_to_look() -> None:
    with pytest.raises(
        AwsError, match=r"ec2:DescribeImages cannot be asked: .*us_west 2.*\n    fix: look at the region"
    ):
        Aws("us_west 2").ask("ec2", "describe_images")


class _Busy(Handler):
    requests = 0

    def do_POST(self) -> None:
        type(self).requests += 1
        self.send_response(503)
        self.end_headers()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Busy]]:
    """An endpoint that answers everything with 503."""
    _Busy.requests = 0
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "none")
    with serving(_Busy) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield _Busy


def test_a_change_is_sent_once(busy: type[_Busy]) -> None:
    with pytest.raises(AwsError, match="refused ec2:DeleteSnapshot"):
        Aws(REGION).change("ec2", "delete_snapshot", SnapshotId="snap-0123456789abcdef0")
    assert busy.requests == 1


def test_an_endpoint_that_is_not_there_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        AwsError, match=r"AWS does not answer ec2:DeleteSnapshot in us-west-2: .*\n    fix: look"
    ) as raised:
        Aws(REGION).change("ec2", "delete_snapshot", SnapshotId="snap-0123456789abcdef0")
    assert raised.value.transient
