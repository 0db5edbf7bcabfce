"""Environment of vLLM: made of a lock once, and made anew where it is not whole. A small package stands in for vLLM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddock.serve.engines import environment
from paddock.serve.engines.environment import install, is_installed, vllm_python
from paddock.serve.errors import ServeError


def test_each_lock_has_an_environment_of_its_own(tmp_path: Path) -> None:
    lock, environ = tmp_path / "vllm.txt", {"XDG_CACHE_HOME": str(tmp_path)}
    assert vllm_python(environ, lock) is None
    lock.write_text("a")
    first = vllm_python(environ, lock)
    lock.write_text("b")
    assert first is not None
    assert first != vllm_python(environ, lock)
    assert not is_installed(first)


def test_an_interrupted_environment_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, said = tmp_path / "vllm.txt", list[str]()
    lock.write_text("# nothing\n")
    python = vllm_python({"XDG_CACHE_HOME": str(tmp_path)}, lock)
    assert python is not None

    def stopped(what: str) -> None:
        raise ServeError("it was unloaded")

    with pytest.raises(ServeError, match="it was unloaded"):
        install(python, stopped, lock)
    assert not is_installed(python)
    install(python, said.append, lock)
    assert is_installed(python)
    assert set(said) == {"installing vLLM (4.3 GB to download)"}
    assert subprocess.run([str(python), "-c", "import sys"], check=True).returncode == 0
    monkeypatch.setattr(environment, "_run", None)
    install(python, said.append, lock)  # nothing is left to do


def test_what_pip_refuses_is_said(tmp_path: Path) -> None:
    lock = tmp_path / "vllm.txt"
    lock.write_text("no-hash==1\n")
    python = vllm_python({"XDG_CACHE_HOME": str(tmp_path)}, lock)
    assert python is not None
    with pytest.raises(ServeError, match=r"vLLM cannot be installed: .*; fix: install it yourself"):
        install(python, lambda _: None, lock)
    assert not is_installed(python)
