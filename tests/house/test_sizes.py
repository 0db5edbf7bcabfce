"""Sizes that README and messages state are those of an installation."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.packages import need

TOLERANCE = 0.15


def stated(text: str, unit: str) -> float:
    return float(re.findall(rf"([\d.]+) {unit}\b", text)[0])


def locked(root: Path, name: str) -> list[str]:
    lines = (root / f"locks/{name}.txt").read_text().splitlines()
    return sorted({line.partition("==")[0] for line in lines if line[:1].isalnum()})


def installed_bytes(names: list[str]) -> int:
    """Of the packages that are here: those of other systems are not."""
    found = [file for name in names for file in _files(name)]
    return sum(file.size or 0 for file in found)


def _files(name: str) -> list[metadata.PackagePath]:
    try:
        return metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return []


LARGEST = {"bench": ("xllamacpp", "MB"), "torch": ("torch", "GB"), "serve": ("ray", "MB")}
"""Of each large set the package that only it holds, and the unit that its size is said in."""


def test_every_large_set_is_checked(inv: ModuleType) -> None:
    assert inv.SIZES.keys() == LARGEST.keys()


@pytest.mark.parametrize("name", LARGEST)
def test_what_is_said_before_a_large_set_is_its_size(name: str, root: Path, inv: ModuleType) -> None:
    package, unit = LARGEST[name]
    need(package)
    size = installed_bytes(locked(root, name)) / {"MB": 1e6, "GB": 1e9}[unit]
    assert stated(inv.SIZES[name], unit) == pytest.approx(size, rel=TOLERANCE)


def first_plan(root: Path) -> tuple[float, float]:
    """Return the megabytes that README states: downloaded, and held afterwards."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    download, held = re.findall(r"downloads (\d+) MB.*?\((\d+) MB\)", readme)[0]
    return float(download), float(held)


def test_the_first_plan_holds_what_readme_says(root: Path) -> None:
    assert first_plan(root)[1] == pytest.approx(installed_bytes(locked(root, "infra")) / 1e6, rel=TOLERANCE)


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["infra", "bench", "serve"])
def test_a_first_run_downloads_what_is_said(name: str, root: Path, tmp_path: Path, inv: ModuleType) -> None:
    lock = str(root / f"locks/{name}.txt")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(tmp_path / "venv/bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "download", "--no-deps", "--require-hashes", "-r", lock, "-d", str(tmp_path / "wheels")]
    if b"Max retries exceeded" in (fetched := subprocess.run(command, capture_output=True)).stderr:
        pytest.skip("the package index cannot be reached")
    assert fetched.returncode == 0, fetched.stderr
    wheels = sum(file.stat().st_size for file in (tmp_path / "wheels").iterdir())
    said = first_plan(root)[0] if name == "infra" else stated(inv.SIZES[name].rpartition(", ")[2], "MB")
    assert said == pytest.approx(wheels / 1e6, rel=TOLERANCE)
