"""The command: exit codes, text, JSON, the key's file, and the page that shows its output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.operate.cli import doctor
from paddock.operate.doctor.report import Report
from paddock.terminal import PRINTED_JSON, BadFlag
from tests.support.aws_account import Account, healthy
from tests.support.github_api import GitHubApi, private_key, serve

ZERO_GPUS = {"L-3819A6DF": 0.0}
Run = Callable[..., int]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "app-key.pem"
    file.write_text(private_key())
    return file


@pytest.fixture
def run(project: Path, programs: Path, address: None, graphs: None, key: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with GitHub's stand-in in the place of github.com."""

    def run_(account: Account, **options: object) -> int:
        with serve(GitHubApi(key.read_text())) as api:
            address_ = f"{api.url}/api/v3"
            monkeypatch.setattr("paddock.operate.doctor.checks.github.api_address", lambda github: address_)
            return doctor.run(project, "dev", github_key=key, clients=account.clients, **options)  # type: ignore[arg-type]

    return run_


def test_exit_code_says_whether_something_fails(run: Run) -> None:
    assert run(Account(healthy())) == 0
    assert run(Account(healthy(quotas=ZERO_GPUS))) == 1
    unknown = Account({**healthy(), "ec2.GetSpotPlacementScores": {"SpotPlacementScores": []}})
    assert run(unknown) == 0
    assert run(unknown, strict=True) == 1


def test_json_holds_the_report_and_nothing_else(run: Run, capsys: pytest.CaptureFixture[str], key: Path) -> None:
    run(Account(healthy(quotas=ZERO_GPUS)), json=PRINTED_JSON)
    text = capsys.readouterr().out
    report = Report.model_validate_json(text)
    assert json.loads(text)["schema"] == "paddock.doctor/1"
    assert report.failed
    assert key.read_text().splitlines()[1] not in text


def test_page_shows_what_the_command_prints(
    run: Run, capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    run(Account(healthy(quotas=ZERO_GPUS, denied=("eks:CreateCluster",))))
    printed = re.sub(r"\d+\.\d s, nothing", "1.0 s, nothing", capsys.readouterr().out)
    page = (root / "docs/doctor.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ \./inv doctor --stack dev --github-key app-key.pem\n(.*?)```", page, re.DOTALL)
    assert shown == printed


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_unreadable_key_is_a_bad_flag(project: Path, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadFlag, match=r"--github-key .*\n    expected: .*\n    fix: "):
        doctor.run(project, "dev", github_key=file)
