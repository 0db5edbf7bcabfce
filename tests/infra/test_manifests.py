"""Manifests: each is filled in somewhere, and a value keeps its kind where it is all there is."""

from __future__ import annotations

import re
from pathlib import Path

from infra.manifests import CONTAINER, manifest


def test_every_manifest_is_used(root: Path) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (root / "infra").rglob("*.py"))
    named = set(re.findall(r'manifest\(\s*"([a-z-]+)"', code))
    assert named == {path.stem for path in (root / "infra/manifests").glob("*.yaml")}


def test_a_value_keeps_its_kind_alone_and_is_text_within() -> None:
    filled = manifest("collector", image="x", resources={"limits": {}}, port=13133)["containers"][0]
    assert filled["resources"] == {"limits": {}}
    assert filled["readinessProbe"]["httpGet"]["port"] == 13133
    assert filled["securityContext"] == CONTAINER
    assert manifest("lifecycle", keep=3)["rules"][0]["description"] == "All but the newest 3 with CUDA"
