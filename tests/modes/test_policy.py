"""Policies, the environment's choice, checklists and alerts."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.modes.alerts import NO_VRAM, THROTTLED, UNUSED, raised
from paddock.modes.checklist import Situation, check
from paddock.modes.config import DEPLOYMENTS, PRESETS, deployment_mode
from paddock.modes.errors import ModeInputError
from paddock.modes.limiter import Statistics
from paddock.modes.policy import of_mode, read

GUIDE = {
    "conservative": (0.5, 0.6, 15, True, 100, 2),
    "default": (0.7, 0.8, 10, True, 50, 4),
    "aggressive": (0.95, 0.95, 0, False, 0, 16),
}


@pytest.mark.parametrize("mode", GUIDE)
def test_presets_have_the_guides_values(mode: str) -> None:
    config = next(config for name, config in PRESETS.items() if name == mode)
    assert GUIDE[mode] == (
        config.max_vram_usage_percent,
        config.max_compute_usage_percent,
        config.process_priority,
        config.enable_auto_throttle,
        config.min_request_interval_ms,
        config.max_batch_size,
    )


def test_the_environment_chooses_the_preset() -> None:
    chosen = {name: deployment_mode({"PADDOCK_DEPLOYMENT_MODE": name}) for name in DEPLOYMENTS}
    assert chosen == {"desktop": "conservative", "server": "aggressive", "hybrid": "default"}
    assert deployment_mode({}) == "conservative"
    with pytest.raises(ModeInputError, match="did you mean server"):
        deployment_mode({"PADDOCK_DEPLOYMENT_MODE": "sever"})


def test_a_policy_changes_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("mode: conservative\nresources: {max_batch_size: 3}\nusers: {ada: {max_batch_size: 1}}\n")
    policy = read(path)
    assert (policy.resources.max_batch_size, policy.resources.process_priority) == (3, 15)


@pytest.mark.parametrize(("text", "message"), [
    ("resources: {max_batch: 3}", 'resources.max_batch: unknown key "max_batch"'),
    ("resources: {max_batch: 3}", 'did you mean "max_batch_size"?'),
    ("resources: {max_vram_usage_percent: 70}", "resources.max_vram_usage_percent: 70"),
    ("resources: {process_priority: low}", 'resources.process_priority: "low" is text'),
    ("mode: agressive", 'did you mean "aggressive"?'),
    ('schedule: [{start: "25:00", end: "06:00", mode: default}]', '"25:00" is not a time of day'),
    ("[1]", "is a list\n    expected: settings by name"),
    ("mode: [", "expected: a policy, YAML or JSON"),
])  # fmt: skip
def test_a_mistake_in_a_policy_is_explained(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(ModeInputError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_deployment_passes_with_its_own_mode_alone(deployment: str) -> None:
    own = next(name for name in DEPLOYMENTS if name == deployment)
    failed = {mode for mode in PRESETS if check(own, Situation(of_mode(mode), "test")).failed}
    assert failed == set(PRESETS) - {DEPLOYMENTS[own]}


def test_alerts_are_those_of_the_guide() -> None:
    assert list(raised(Statistics(10, 6), deployment="server", utilisation=19)) == [THROTTLED, UNUSED]
    assert list(raised(Statistics(10, 5), deployment="desktop", utilisation=19)) == []
    assert list(raised(Statistics(vram_limit_errors=1))) == [NO_VRAM]
