"""What every test may rely on: no AWS account, no user's settings and no caller's folder leak into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "PULUMI_", "PADDOCK_")) and name not in {"AWS_CA_BUNDLE", "PADDOCK_LAB_BIN"}:
            monkeypatch.delenv(name)
    # A chain of credentials that ends nowhere: a forgotten stub fails at once and cannot reach an account.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
