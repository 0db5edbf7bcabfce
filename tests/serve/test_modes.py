"""The mode of `serve.load`: its names, its policies, and what an instance gets of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.modes.errors import ModeInputError
from paddock.modes.policy import Policy
from paddock.serve.commands.requests import load_mode
from paddock.serve.errors import ServeInputError


def test_a_mode_decides_concurrency_and_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDOCK_DEPLOYMENT_MODE", raising=False)
    assert (load_mode("").name, load_mode("").concurrency(None)) == ("aggressive", 4)
    assert (load_mode("conservative").reserve, load_mode("conservative").concurrency(None)) == (0.5, 2)
    monkeypatch.setenv("PADDOCK_DEPLOYMENT_MODE", "desktop")
    assert load_mode("").name == "conservative"


@pytest.mark.parametrize(
    ("name", "concurrency", "message"),
    [
        ("agressive", None, "did you mean aggressive"),
        ("conservative", 3, "allows 2 requests side by side"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(name: str, concurrency: int | None, message: str) -> None:
    with pytest.raises((ServeInputError, ModeInputError), match=message):
        load_mode(name).concurrency(concurrency)


def test_a_policy_of_a_file_reaches_the_replica_whole(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text(
        "mode: conservative\nresources: {max_batch_size: 3}\n"
        'schedule: [{start: "22:00", end: "06:00", mode: default}]\n'
        "adaptive: {foreign_load: 0.2}\ngpu: {power_watts: 200}\neach_user: {min_request_interval_ms: 500}\n"
        "applications: {batch: {max_compute_usage_percent: 0.3}}"
    )
    mode = load_mode(str(file))
    assert (mode.name, mode.most, mode.reserve, mode.share) == ("night", 4, 0.3, 0.7)
    policy = Policy.model_validate_json(mode.text)
    assert (policy.resources.max_batch_size, policy.adaptive.foreign_load, policy.gpu.power_watts) == (3, 0.2, 200)
    assert policy.applications["batch"].max_compute_usage_percent == 0.3
    file.write_text("mode: fast")
    with pytest.raises(ModeInputError):
        load_mode(str(file))
