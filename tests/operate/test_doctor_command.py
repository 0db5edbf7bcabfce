"""The command: exit codes, text, JSON, the key's file, and the page that shows its output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.console.output import BadFlag
from paddock.operate.doctor.command import Doctor, doctor
from paddock.operate.doctor.report import Examination
from tests.support.aws_account import Account, answering, healthy
from tests.support.github_api import GitHubApi, private_key, serve

ZERO_GPUS = {"L-3819A6DF": 0.0}
Run = Callable[..., Examination]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "app-key.pem"
    file.write_text(private_key())
    return file


@pytest.fixture
def run(
    of_project: Path, programs: Path, address: None, graphs: None, key: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the command with GitHub's stand-in in the place of github.com."""

    def run_(account: Account, *, strict: bool = False) -> Examination:
        answering(monkeypatch, account)
        with serve(GitHubApi(key.read_text())) as api:
            address_ = f"{api.url}/api/v3"
            for module in ("doctor.checks.github", "sources.github"):
                monkeypatch.setattr(f"paddock.operate.{module}.api_address", lambda github: address_)
            return doctor(Doctor(github_key=key, strict=strict))

    return run_


def test_exit_code_says_whether_something_fails(run: Run) -> None:
    assert run(Account(healthy())).exit_code == 0
    assert run(Account(healthy(quotas=ZERO_GPUS))).exit_code == 1
    unknown = Account({**healthy(), "ec2.GetSpotPlacementScores": {"SpotPlacementScores": []}})
    assert run(unknown).exit_code == 0
    assert run(unknown, strict=True).exit_code == 1


def test_document_has_the_results_and_no_key(run: Run, key: Path) -> None:
    document = run(Account(healthy(quotas=ZERO_GPUS)), strict=True).document()
    assert list(document)[:3] == ["schema", "stack", "fleet"]
    assert (document["schema"], "strict" in document) == ("paddock.doctor/1", False)
    assert "fail" in {result["status"] for result in document["results"]}
    assert key.read_text().splitlines()[1] not in json.dumps(document)


def test_page_shows_what_the_command_prints(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_PROGRAM", "./inv")
    report = replace(run(Account(healthy(quotas=ZERO_GPUS, denied=("eks:CreateCluster",)))), seconds=1.0)
    printed = "".join(f"{line}\n" for line in report.text())
    printed = re.sub(r"127\.0\.0\.1:\d+ answers", "api.github.com answers", printed)
    page = (root / "docs/doctor.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ \./inv doctor --stack dev --github-key app-key.pem\n(.*?)```", page, re.DOTALL)
    assert shown == printed


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_unreadable_key_is_a_bad_flag(of_project: Path, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadFlag, match=r"--github-key .*\n    expected: .*\n    fix: "):
        doctor(Doctor(github_key=file))
