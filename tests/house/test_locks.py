"""The locks: complete, hashed, of one mind, and silent about where the packages came from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paddock.house import ORACLES, PEERS, lock_sets

OF_ORACLES = [f"oracles/{name}" for name in (*ORACLES, *PEERS)]


@pytest.mark.parametrize("name", [*lock_sets(), *OF_ORACLES])
def test_every_pin_is_exact_and_hashed(root: Path, name: str) -> None:
    pins = list(_pins(root, name))
    assert pins
    for requirement, hashes in pins:
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), requirement
        assert hashes, f"{requirement} has no hash"


@pytest.mark.parametrize("name", [*lock_sets(), "constraints", *OF_ORACLES])
def test_no_lock_names_an_index(root: Path, name: str) -> None:
    text = (root / f"locks/{name}.txt").read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ ", text)


@pytest.mark.parametrize("name", lock_sets())
def test_what_pyproject_asks_for_is_pinned_at_a_version_it_allows(root: Path, name: str) -> None:
    pinned = {canonicalize_name(r.name): str(r.specifier)[2:] for r, _ in _pins(root, name)}
    for requirement in _direct(root, lock_sets()[name]):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not in locks/{name}.txt; run ./inv lock"
        assert requirement.specifier.contains(version), f"{requirement}: locks/{name}.txt has {version}; run ./inv lock"


def test_a_package_has_one_version_in_all_locks(root: Path) -> None:
    common = set(_lines(root, "constraints"))
    for name in lock_sets():
        strangers = {_pin(line) for line in _lines(root, name)} - {_pin(line) for line in common}
        assert not strangers, f"locks/{name}.txt is not of constraints.txt: {strangers}; run ./inv lock"


def _direct(root: Path, extras: tuple[str, ...]) -> Iterator[Requirement]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pending = [*project["dependencies"], *(line for e in extras for line in project["optional-dependencies"][e])]
    while pending:
        requirement = Requirement(pending.pop())
        if requirement.name == project["name"]:
            pending += [line for extra in requirement.extras for line in project["optional-dependencies"][extra]]
        else:
            yield requirement


def _pins(root: Path, name: str) -> Iterator[tuple[Requirement, list[str]]]:
    text = (root / f"locks/{name}.txt").read_text().replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        requirement, *hashes = re.split(r"\s+--hash=", line)
        yield Requirement(requirement), hashes


def _lines(root: Path, name: str) -> list[str]:
    return [line for line in (root / f"locks/{name}.txt").read_text().splitlines() if line[:1].isalnum()]


def _pin(line: str) -> str:
    return line.split()[0]
