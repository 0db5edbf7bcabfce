"""The checklists and the alerts on the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from paddock.bench.cli import modes as command
from paddock.bench.errors import BenchInputError
from tests.support.nvml import Driver, box, installed


def perform(**flags: object) -> int:
    return command.perform({name: flags.get(name, flag.default) for name, flag in command.FLAGS.items()})


def test_what_only_a_person_can_do_is_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_DEPLOYMENT_MODE", "server")
    with installed(Driver(box("H100", 1, utilisation=(91, 40)))):
        assert perform(check="server", json="-") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["status"] for item in items] == ["pass"] * 5 + ["person"] * 2
    assert items[4]["evidence"] == "91 % now"


def test_a_failed_item_names_its_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert perform(check="hybrid", json=str(tmp_path / "out.json")) == 1
    output = capsys.readouterr().out
    assert "hybrid deployment, PADDOCK_DEPLOYMENT_MODE is not set" in output
    assert "fix: set PADDOCK_DEPLOYMENT_MODE=hybrid, or write mode: default" in output
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "fail"


def test_an_unknown_checklist_is_explained() -> None:
    with pytest.raises(BenchInputError, match="did you mean desktop"):
        perform(check="destop")


def test_the_alerts_are_printed_for_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    assert perform(alerts=True) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert group["rules"][0]["expr"] == "inference_throttle_rate > 0.5"
