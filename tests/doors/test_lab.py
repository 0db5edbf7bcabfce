"""The lab where nothing of it runs; tests/e2e/test_story.py has the real one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.door import Here


def test_a_lab_that_is_not_there_is_named_with_what_starts_it(here: Here, tmp_path: Path) -> None:
    env = {"PADDOCK_LAB_STATE": str(tmp_path)}
    assert here("lab.status", env=env) == (1, "no lab of dev; ./inv lab.up starts one\n", "")
    code, shown, _ = here("lab.demo", "--json", env=env)
    assert code == 1
    assert "is not up\n    fix: ./inv lab.up" in json.loads(shown)["error"]
    code, shown, _ = here("lab.down", "--json", env=env)
    assert (code, json.loads(shown)["ended"]) == (0, [])
