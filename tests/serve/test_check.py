"""`serve.check`: the checklists and the alerts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from paddock.tasks.program import main
from tests.support.nvml import Driver, box, installed


def check(*words: str) -> int:
    return main(["inv", "serve.check", *words])


def test_what_only_a_person_can_do_is_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDOCK_DEPLOYMENT_MODE", "server")
    with installed(Driver(box("H100", 1, utilisation=(91, 40)))):
        assert check("server", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["schema", "deployment", "policy", "verdict", "items"]
    assert [item["status"] for item in document["items"]] == ["pass"] * 5 + ["person"] * 2
    assert document["items"][4]["evidence"] == "91 % now"


def test_a_failed_item_names_its_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert check("hybrid", "--json", str(tmp_path / "out.json")) == 1
    output = capsys.readouterr().out
    assert "hybrid deployment, PADDOCK_DEPLOYMENT_MODE is not set" in output
    assert "fix: set PADDOCK_DEPLOYMENT_MODE=hybrid, or write mode: default" in output
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "fail"


def test_a_policy_of_a_file_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text("mode: conservative\nresources: {max_vram_usage_percent: 0.9}")
    assert check("desktop", "--config", str(tmp_path / "night.yaml"), "--dtype", "int4") == 1
    output = capsys.readouterr().out
    assert "desktop deployment, night.yaml" in output
    assert "int4 weights" in output


@pytest.mark.parametrize(("words", "message"), [
    (["destop"], "did you mean desktop"),
    ([], "serve.check needs DEPLOYMENT"),
])  # fmt: skip
def test_an_unknown_checklist_is_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*words) == 2
    assert message in capsys.readouterr().err


def test_the_alerts_are_printed_for_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--alerts") == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert group["rules"][0]["expr"] == "inference_throttle_rate > 0.5"
