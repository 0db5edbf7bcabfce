"""Fixtures that several of these tests share."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from paddock.images.recipes import wheels
from tests.support.allowed import only_what_policies_allow
from tests.support.ami_account import project, world

__all__ = ["only_what_policies_allow", "project", "world"]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file of one package, which pip finds in the folder `index`."""
    index = tmp_path / "index"
    index.mkdir()
    files = {
        "a.py": "",
        "a-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: a\nVersion: 1\n",
        "a-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    sums = {name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for name, text in files.items()}
    record = "".join(
        f"{name},sha256={digest.decode().rstrip('=')},{len(files[name])}\n" for name, digest in sums.items()
    )
    with zipfile.ZipFile(index / "a-1-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, "a-1.dist-info/RECORD": record + "a-1.dist-info/RECORD,,\n"}.items():
            wheel.writestr(name, text)
    monkeypatch.setattr(wheels, "PYTHONS", ("3.12",))  # one is enough to see it, and each costs a second
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    sum_ = hashlib.sha256((index / "a-1-py3-none-any.whl").read_bytes()).hexdigest()
    (tmp_path / "base.txt").write_text(f"a==1 --hash=sha256:{sum_}\n")
    return tmp_path / "base.txt"
