"""The reader of AWS on its way to a server: throttling; and the programs of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddock.operate.sources import programs as sources
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound, Unavailable
from tests.operate.conftest import program
from tests.support.http_server import Handler, serving

_THROTTLED = (
    "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors></Response>"
)


class Endpoint(Handler):
    """An endpoint of AWS that throttles."""

    requests = 0

    def do_POST(self) -> None:
        type(self).requests += 1
        self.send(503, _THROTTLED)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Endpoint]]:
    class Own(Endpoint):
        pass

    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "none")
    with serving(Own) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield Own


def test_throttled_call_is_sent_again_and_then_unknown(
    endpoint: type[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=waits.append, time=time.time))
    with pytest.raises(Unavailable, match="throttles ec2:DescribeVpcs") as raised:
        AwsReader("us-west-2").read("ec2", "describe_vpcs")
    assert endpoint.requests == 4
    assert len(waits) == 3
    assert "run it again in a minute" in raised.value.fix


def test_operation_that_changes_something_is_refused() -> None:
    with pytest.raises(ValueError, match="delete_vpc may change something"):
        AwsReader("us-west-2").read("ec2", "delete_vpc", VpcId="vpc-0")


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("pulumi", "v3.259.0", (3, 259, 0)),
        ("aws", "aws-cli/2.31.2 Python/3.13.7 Linux/6.12", (2, 31, 2)),
        (
            "kubectl",
            '{"clientVersion": {"major": "1", "minor": "36+", "gitVersion": "v1.36.1-eks-1234567"}}',
            (1, 36, 1),
        ),
        ("docker", "Docker version 28.2.2, build e6534b4", (28, 2, 2)),
    ],
)
def test_version_is_read_from_what_programs_print(
    programs: Path, name: str, text: str, version: tuple[int, ...]
) -> None:
    program(programs, name, f"echo '{text}'")
    assert sources.version(name) == version


def test_program_without_a_version_is_unknown(programs: Path) -> None:
    program(programs, "pulumi", "echo; exit 0")
    with pytest.raises(Unavailable, match="states no version"):
        sources.version("pulumi")


def test_program_that_is_missing_is_not_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="docker is not on PATH"):
        sources.version("docker")


def test_program_that_hangs_is_ended(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PATIENCE", 0.2)
    program(programs, "pulumi", "exec sleep 30")
    with pytest.raises(Unavailable, match="pulumi version did not end within 0 s"):
        sources.version("pulumi")
