"""Edits of a stack file: the value that is asked for, and not one other byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.fleet.errors import EditError
from paddock.fleet.stackfile import edit

STACK = """\
# ours
config:
  aws:region: us-west-2
  paddock:githubToken: {secure: AAAB}
  paddock:fleet:
    pools:
      t4: {instances: [g4dn.xlarge], nodes: {max: 5}}  # cheap
    runners:
      gpu:
        pool: t4
        max: 5  # all
  paddock:suppressions:
    - {rule: PAD001, resource: a}
    - {rule: PAD002, resource: b}
"""
GPU = ("paddock:fleet", "runners", "gpu")


@pytest.mark.parametrize(("key", "value", "old", "new"), [
    ((*GPU, "max"), 3, "max: 5  # all", "max: 3  # all"),
    ((*GPU, "max"), 5, "", ""),
    ((*GPU, "max"), edit.REMOVE, "        max: 5  # all\n", ""),
    ((*GPU, "min"), edit.REMOVE, "", ""),
    (GPU, {"pool": "t4", "cpu": 2}, "max: 5  # all", "cpu: 2"),
    (("paddock:fleet", "pools", "t4", "nodes", "min"), 1, "{max: 5}", "{max: 5, min: 1}"),
    (("paddock:fleet", "pools", "t4", "nodes", "max"), edit.REMOVE, "{max: 5}", "{}"),
    (("paddock:suppressions", 0), edit.REMOVE, "    - {rule: PAD001, resource: a}\n", ""),
])  # fmt: skip
def test_an_edit_changes_its_key_alone(key: Any, value: Any, old: str, new: str) -> None:
    assert edit.edited("Pulumi.dev.yaml", STACK.encode(), {key: value}).decode() == STACK.replace(old, new, 1)


def test_items_that_go_do_not_move_one_another() -> None:
    changes = {("paddock:suppressions", number): edit.REMOVE for number in (0, 1)}
    after = edit.edited("Pulumi.dev.yaml", STACK.encode(), changes).decode()
    assert after == STACK.partition("  paddock:suppressions")[0] + "  paddock:suppressions:\n    []\n"


@pytest.mark.parametrize(("top", "words"), [
    ("paddock:layers", "is not in it"), ("paddock:githubToken", "is encrypted"), ("aws:region", "is not a map"),
])  # fmt: skip
def test_what_has_no_settings_below_it_is_refused(top: str, words: str) -> None:
    with pytest.raises(EditError, match=f"nothing is changed in Pulumi.dev.yaml: {top} {words}"):
        edit.edited("Pulumi.dev.yaml", STACK.encode(), {(top, "a"): 1})


def test_a_file_that_changed_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(STACK)
    with pytest.raises(EditError, match="it was changed in the meantime"):
        edit.replace(file, b"other", b"new")
    assert edit.read(file) == STACK.encode()
    edit.replace(file, STACK.encode(), b"new")
    assert file.read_bytes() == b"new"
    with pytest.raises(EditError, match=r"cannot read .*: No such file"):
        edit.read(tmp_path / "none.yaml")
