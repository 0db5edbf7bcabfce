"""The lab where nothing of it runs; tests/e2e/test_story.py has the real one."""

from __future__ import annotations

import json

from tests.support.door import Door


def test_a_lab_that_is_not_there_is_named_with_what_starts_it(inv: Door) -> None:
    env = {"PADDOCK_LAB_STATE": str(inv.home)}
    status = inv("lab.status", env=env)
    assert (status.returncode, status.stdout) == (1, "no lab of dev; ./inv lab.up starts one\n"), status.stderr
    shown = inv("lab.demo", "--json", env=env)
    assert shown.returncode == 1
    assert "is not up\n    fix: ./inv lab.up" in json.loads(shown.stdout)["error"]
    down = inv("lab.down", "--json", env=env)
    assert (down.returncode, json.loads(down.stdout)["ended"]) == (0, [])
