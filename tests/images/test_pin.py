"""Pinning changes the asked keys of a stack file and not one byte more, or nothing at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.fleet import load
from paddock.images import pin as module
from paddock.images.errors import BuildInputError
from paddock.images.pin import pin
from tests.support.explore import examples

RUNNER = ("images", "runner")
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/paddock/runner-gpu:12.8-runner2.338.0-0123456789ab@sha256:" + (
    "a" * 64
)
OTHER = IMAGE.replace("a" * 64, "b" * 64)
AMI = {"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.36"}

STACK = """\
# Who owns it: the platform team.
config:
  aws:region: us-west-2      # Oregon
  paddock:fleet:
    github: {url: https://github.com/acme, token: config}

    pools:
      t4: {instances: [g4dn.xlarge], nodes: {max: 5}}   # cheap
      'a10g':
        instances:
        - g5.xlarge
        nodes:
          max: 2   # quota
          # min: 1
    runners:
      gpu: {pool: t4}
      # big: {pool: a10g}
# secrets below
  other:key: "1.0"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: paddock\nruntime: python\n")
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_bytes(STACK.encode())
    return path


def pinned(file: Path, changes: Mapping[tuple[str, ...], Any], text: str = STACK) -> str:
    file.write_bytes(text.encode())
    pin(file, changes)
    return file.read_bytes().decode()


def refused(file: Path, changes: Mapping[tuple[str, ...], Any], text: str) -> str:
    file.write_bytes(text.encode())
    with pytest.raises(BuildInputError) as caught:
        pin(file, changes)
    assert file.read_bytes() == text.encode()
    assert sorted(path.name for path in file.parent.iterdir()) == ["Pulumi.dev.yaml", "Pulumi.yaml"]
    return str(caught.value)


def test_a_map_that_is_missing_is_made_like_its_neighbours(file: Path) -> None:
    added = f'    images:\n      runner: "{IMAGE}"\n'
    behind = "      # big: {pool: a10g}\n"
    assert pinned(file, {RUNNER: IMAGE}) == STACK.replace(behind, behind + added)
    assert load(file.parent, "dev").fleet.images.runner == IMAGE


def test_a_value_is_replaced_where_it_stands(file: Path) -> None:
    text = STACK.replace("    runners:\n", f"    images:\n        runner: '{OTHER}'  # since May\n    runners:\n")
    assert pinned(file, {RUNNER: IMAGE}, text) == text.replace(f"'{OTHER}'", f'"{IMAGE}"')


def test_the_same_value_again_changes_nothing(file: Path) -> None:
    text = STACK.replace("    runners:\n", f"    images: {{runner: '{IMAGE}'}}\n    runners:\n")
    before = file.stat().st_mtime_ns
    file.write_text(text)
    os.utime(file, ns=(before, before))
    pin(file, {RUNNER: IMAGE})
    assert (file.read_text(), file.stat().st_mtime_ns) == (text, before)


@pytest.mark.parametrize("nothing", [":", ": ~", ": {}", ":   # to come"])
def test_a_key_that_has_nothing_yet_is_filled(file: Path, nothing: str) -> None:
    text = STACK.replace("    runners:\n", f"    images{nothing}\n    runners:\n")
    comment = "   # to come" if "#" in nothing else ""
    expected = text.replace(f"images{nothing}\n", f'images: {{runner: "{IMAGE}"}}{comment}\n')
    assert pinned(file, {RUNNER: IMAGE}, text) == expected


def test_an_ami_goes_into_braces_and_below_a_block(file: Path) -> None:
    form = '{custom: ami-0123456789abcdef0, driver: "580.159.03", kubernetes: "1.36"}'
    after = pinned(file, {("pools", "t4", "ami"): AMI, ("pools", "a10g", "ami"): AMI})
    block = "          # min: 1\n"
    expected = STACK.replace("nodes: {max: 5}}", f"nodes: {{max: 5}}, ami: {form}}}")
    assert after == expected.replace(block, f"{block}        ami: {form}\n")


def test_an_ami_in_a_block_keeps_its_comments(file: Path) -> None:
    rows = ("  custom: ami-0  # tested on Monday", '  driver: "570.1"', '  kubernetes: "1.36"')
    old = "".join(f"        {row}\n" for row in ("ami:", *rows))
    text = STACK.replace("        nodes:\n", old + "        nodes:\n")
    after = pinned(file, {("pools", "a10g", "ami"): AMI}, text)
    assert after == text.replace("ami-0 ", "ami-0123456789abcdef0 ").replace("570.1", "580.159.03")


def test_one_form_of_an_ami_takes_the_place_of_another(file: Path) -> None:
    block = STACK.replace("        nodes:\n", '        ami:\n          release: "1.36.2-20260714"\n        nodes:\n')
    new = "".join(
        f"          {row}\n" for row in ("custom: ami-0123456789abcdef0", 'driver: "580.159.03"', 'kubernetes: "1.36"')
    )
    after = pinned(file, {("pools", "a10g", "ami"): AMI}, block)
    assert after == block.replace('          release: "1.36.2-20260714"\n', new)

    flow = STACK.replace("nodes: {max: 5}}", 'ami: {release: "1.36.2-20260714"}, nodes: {max: 5}}')
    after = pinned(file, {("pools", "t4", "ami"): AMI}, flow)
    replacement = 'custom: ami-0123456789abcdef0, driver: "580.159.03", kubernetes: "1.36"'
    assert after == flow.replace('release: "1.36.2-20260714"', replacement)


def test_windows_line_ends_and_a_missing_last_one_stay(file: Path) -> None:
    text = STACK.replace('# secrets below\n  other:key: "1.0"\n', "").rstrip("\n").replace("\n", "\r\n")
    assert pinned(file, {RUNNER: IMAGE}, text) == f'{text}\r\n    images:\r\n      runner: "{IMAGE}"'
    assert pinned(file, {RUNNER: IMAGE}, "\ufeff" + STACK).startswith("\ufeff# Who")


def test_mode_and_link_stay(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    file.rename(real)
    file.symlink_to(real)
    real.chmod(0o640)
    pin(file, {RUNNER: IMAGE})
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert IMAGE in real.read_text()


@pytest.mark.parametrize(("old", "new", "message"), [
    ("      gpu: {pool: t4}", "      gpu: {pool: nowhere}", "with the new images.runner it would be wrong"),
    ("pools:\n", "pools: &all\n", None),
    ("  aws:region", " aws:region", "cannot be read"),
    ("  paddock:fleet:\n", "  paddock:other:\n", "paddock:fleet is not in it"),
])  # fmt: skip
def test_a_wrong_file_is_reported(file: Path, old: str, new: str, message: str | None) -> None:
    text = STACK.replace(old, new)
    if message is None:  # an anchor that is not on the way
        assert pinned(file, {RUNNER: IMAGE}, text).count(IMAGE) == 1
    else:
        assert message in refused(file, {RUNNER: IMAGE}, text)


def test_a_fleet_that_would_be_wrong_is_not_written(file: Path) -> None:
    message = refused(file, {("pools", "t4", "ami"): AMI | {"kubernetes": "1.29"}}, STACK)
    assert "with the new pools.t4.ami it would be wrong" in message
    assert "Pulumi.dev.yaml:8" in message
    assert "images.runner" in refused(file, {RUNNER: "latest"}, STACK)
    assert "images.runer" in refused(file, {("images", "runer"): IMAGE}, STACK)


@pytest.mark.parametrize(("fleet", "message"), [
    ("{secure: AAABAQ==}", "is encrypted"),
    ("'{\"github\": {}}'", "is not a map"),
    ("[1, 2]", "is not a map"),
])  # fmt: skip
def test_a_fleet_that_is_no_yaml_map_is_refused(file: Path, fleet: str, message: str) -> None:
    assert message in refused(file, {RUNNER: IMAGE}, f"config:\n  paddock:fleet: {fleet}\n")


def test_a_scalar_in_place_of_a_map_is_named(file: Path) -> None:
    text = STACK.replace("    runners:\n", "    images: later\n    runners:\n")
    assert "yaml: paddock:fleet.images: this is not a map" in refused(file, {RUNNER: IMAGE}, text)


def test_a_map_shared_by_an_anchor_is_refused(file: Path) -> None:
    text = (
        STACK.replace("t4: {", "t4: &small {")
        .replace("      gpu:", "      gpu:")
        .replace("    runners:", "      l4: *small\n    runners:")
    )
    for pool in ("t4", "l4"):
        assert "shared with other places" in refused(file, {("pools", pool, "ami"): AMI}, text)
    merged = STACK.replace("gpu: {pool: t4}", "gpu: &gpu {pool: t4}\n      two: {<<: *gpu, name: two}")
    after = pinned(file, {("runners", "two", "image"): IMAGE}, merged)
    assert after == merged.replace("name: two}", f'name: two, image: "{IMAGE}"}}')


def test_a_map_that_comes_by_merge_is_not_lost(file: Path) -> None:
    text = STACK.replace("config:\n", "base: &base\n  images: {repositories: [one]}\nconfig:\n", 1).replace(
        "    github:", "    <<: *base\n    github:"
    )
    assert "cannot be set there" in refused(file, {RUNNER: IMAGE}, text)


def test_a_file_changed_concurrently_is_not_overwritten(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_while_another_writes(*_: Any, **__: Any) -> None:
        file.write_text(STACK + "# me too\n")

    monkeypatch.setattr(module, "load", load_while_another_writes)
    with pytest.raises(BuildInputError, match="changed in the meantime"):
        pin(file, {RUNNER: IMAGE})
    assert file.read_text() == STACK + "# me too\n"
    assert not list(file.parent.glob(".Pulumi*"))


def test_the_examples_of_the_repository_can_be_pinned(root: Path, file: Path) -> None:
    for name in ("dev", "prod"):
        text = (root / f"Pulumi.{name}.yaml").read_text()
        after = pinned(file, {RUNNER: IMAGE, ("pools", "t4", "ami"): AMI}, text)
        assert load(file.parent, "dev").fleet.images.runner == IMAGE
        unchanged = [line for line in after.splitlines() if IMAGE not in line and "ami-0123456789abcdef0" not in line]
        assert [line for line in unchanged if line not in text.splitlines()] in ([], ["    images:"])


# --- for every file

_SPACES = st.sampled_from(["", "   ", "  # note: {a} & 'b'"])
_LINES = st.sampled_from(["", "# whole line", "      # deeper", "  # {unclosed"])


@st.composite
def stacks(draw: st.DrawFn) -> str:
    """A valid stack file, written in any of the styles that people use, with comments anywhere."""
    step = draw(st.sampled_from([2, 3, 4]))
    lines = ["config:", f"{' ' * step}aws:region: us-west-2", f"{' ' * step}'paddock:fleet':"]
    in_fleet: dict[str, Any] = {
        "github": {"url": "https://github.com/acme", "token": "config"},
        "pools": {
            "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": draw(st.integers(1, 9))}},
            "a10g": {"instances": ["g5.xlarge"], "nodes": {"max": 2}},
        },
        "runners": {"gpu": {"pool": "t4", "labels": ["a", "b"]}, "other": {"pool": "a10g"}},
    }
    if draw(st.booleans()):
        in_fleet["images"] = draw(st.sampled_from([{"runner": OTHER}, {"keep": 5}, {"keep": 5, "runner": OTHER}]))
    if draw(st.booleans()):
        in_fleet["pools"]["t4"]["ami"] = {"release": "1.36.2-20260714"}

    def written(value: Any, depth: int) -> list[str]:
        lines: list[str] = []
        for name in draw(st.permutations(list(value))):
            item, key = value[name], draw(st.sampled_from([name, f'"{name}"', f"'{name}'"]))
            before = " " * (step * depth)
            if isinstance(item, dict) and draw(st.booleans()):
                lines += [f"{before}{key}:{draw(_SPACES)}", *written(item, depth + 1)]
            else:
                flow = yaml.safe_dump(item, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
                lines.append(f"{before}{key}: {flow}{draw(_SPACES)}")
            if draw(st.integers(0, 4)) == 0:
                lines.append(draw(_LINES))
        return lines

    lines += written(in_fleet, 2)
    if draw(st.booleans()):
        lines += [f"{' ' * step}aws:profile: ops", "# the end"]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n", "\r\n"]))


_CHANGES = st.lists(
    st.sampled_from([RUNNER, ("runners", "gpu", "image"), ("pools", "t4", "ami"), ("pools", "a10g", "ami")]),
    unique=True,
    min_size=1,
)


@examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stacks(), _CHANGES)
def test_everything_else_stays_byte_for_byte(file: Path, text: str, paths: list[tuple[str, ...]]) -> None:
    for path in paths:
        expected = yaml.safe_load(text)
        above = expected["config"]["paddock:fleet"]
        for name in path[:-1]:
            above = above.setdefault(name, {})
        old = above.get(path[-1])
        above[path[-1]] = value = AMI if path[-1] == "ami" else IMAGE

        after = pinned(file, {path: value}, text)

        assert yaml.safe_load(after) == expected
        head = same(text, after)
        unchanged = head + same(text[head:][::-1], after[head:][::-1])
        # Nothing but what stood there is gone: an image in quotes, or a line with the other form of an AMI.
        assert unchanged >= len(text) - (0 if old is None else 90 if path[-1] == "ami" else len(OTHER) + 2)
        text = after


def same(first: str, second: str) -> int:
    """Characters at the start of both."""
    return next(
        (at for at, pair in enumerate(zip(first, second, strict=False)) if len(set(pair)) > 1),
        min(len(first), len(second)),
    )
