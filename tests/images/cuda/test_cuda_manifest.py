from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.images.cuda import builder, manifest
from paddock.images.errors import BuildError, BuildInputError

PROGRAM = b"\x7fELF of a test"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cuda-smoke").write_bytes(PROGRAM)
    document = {
        "schema": 2,
        "platform": "linux/amd64",
        "toolkit": "12.8",
        "architectures": ["75", "90"],
        "glibc": "2.34",
        "files": {"cuda-smoke": {"sha256": hashlib.sha256(PROGRAM).hexdigest(), "bytes": len(PROGRAM)}},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    return tmp_path


def test_a_folder_that_matches_its_manifest_is_read(folder: Path) -> None:
    build = manifest.read(folder)
    assert (build.toolkit, build.architectures, build.glibc) == ("12.8", ("75", "90"), "2.34")
    assert build.files["cuda-smoke"].bytes == len(PROGRAM)


def _no_sum(document: dict[str, Any]) -> None:
    document["files"]["cuda-smoke"]["sha256"] = "none"


def _outside(document: dict[str, Any]) -> None:
    document["files"]["../cuda-smoke"] = document["files"]["cuda-smoke"]


@pytest.mark.parametrize(("spoil", "message"), [(_no_sum, "sha256"), (_outside, r"files\.\.\./cuda-smoke")])
def test_a_manifest_of_another_form_is_refused(
    folder: Path, spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    spoil(document)
    (folder / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(BuildInputError, match=message):
        manifest.read(folder)


@pytest.mark.parametrize("change", [{"schema": 1, "platform": None}, {"schema": 1}, {"schema": 3}])
def test_a_folder_of_another_version_is_refused_with_what_to_do(folder: Path, change: dict[str, Any]) -> None:
    document = json.loads((folder / "manifest.json").read_text()) | change
    (folder / "manifest.json").write_text(json.dumps({key: value for key, value in document.items() if value}))
    with pytest.raises(BuildInputError) as error:
        manifest.read(folder)
    assert str(error.value).splitlines() == [
        f"{folder}/manifest.json is of another version of Paddock",
        "    expected: a manifest of schema 2",
        f"    fix: ./inv images.build cuda-builder --run, or rm -r {folder} to build without CUDA programs",
    ]


def test_the_scripts_manifest_is_read_with_a_stand_in_compiler(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {
        "nvcc": 'case $1 in --version) echo "release 12.8, V12.8" ;; --list-gpu-code) echo sm_90 ;; *)\n'
        'while [ "$1" != -o ]; do shift; done; echo program >"$2"; chmod +x "$2" ;; esac',
        "objdump": "echo GLIBC_2.34",
    }
    for name, body in tools.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    subprocess.run([root / "images/cuda-builder/compile.sh", folder / "made"], check=True, capture_output=True)
    build = manifest.read(folder / "made")
    assert builder.compile_here(root, folder / "native") == build == manifest.read(folder / "native")
    assert os.access(folder / "native/cuda-smoke", os.X_OK)
    with pytest.raises(BuildError, match="does not compile for sm_75"):
        builder.compile_here(root, folder / "other", ["7.5"])
    assert not (folder / "other").exists()
    assert (build.version, build.toolkit, build.architectures, build.glibc) == (2, "12.8", ("90",), "2.34")


def test_a_folder_that_contradicts_its_manifest_is_refused(folder: Path) -> None:
    (folder / "cuda-smoke").write_bytes(PROGRAM[::-1])
    with pytest.raises(BuildInputError, match="cuda-smoke is not what was built"):
        manifest.read(folder)
    (folder / "cuda-smoke").unlink()
    with pytest.raises(BuildInputError, match="cuda-smoke cannot be read: No such file"):
        manifest.read(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(BuildInputError, match="is not a manifest: Invalid JSON"):
        manifest.read(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(BuildInputError, match=r"manifest\.json cannot be read"):
        manifest.read(folder)
