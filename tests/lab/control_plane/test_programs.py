"""Selection of the programs of the lab, and the message about missing ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.lab.control_plane import programs
from paddock.lab.errors import LabInputError
from paddock.lab.stack.engine import KUBERNETES_PLUGIN, Programs


def program(folder: Path, name: str, text: str = "Kubernetes v1.35.4") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PADDOCK_LAB_BIN", str(tmp_path))
    monkeypatch.setenv("KWOK_WORKDIR", str(tmp_path / "kwok"))
    return tmp_path


def test_one_message_names_every_missing_program_and_where_it_comes_from(empty_path: Path) -> None:
    program(empty_path, "etcd")
    with pytest.raises(LabInputError) as refused:
        programs.find()
    message = str(refused.value)
    assert message.startswith("the lab needs 4 more programs:")
    for name in set(programs.PROGRAMS) - {"etcd"}:
        assert f"\n    {name} " in message
    assert "etcd " not in message
    assert "PADDOCK_LAB_BIN" in message
    assert refused.value.exit_code == 2


def test_the_folder_of_the_lab_goes_before_path(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = empty_path / "path"
    on_path.mkdir()
    program(on_path, "etcd", "etcd Version: 3.5.0")
    own_etcd = program(empty_path, "etcd", "etcd Version: 3.6.16\nGo Version: go1.26.8")
    assert programs.find(["etcd"]) == {"etcd": own_etcd}


def test_a_program_that_does_not_run_is_named(empty_path: Path) -> None:
    broken = empty_path / "kwok"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    with pytest.raises(LabInputError, match="kwok does not run"):
        programs.find(["kwok"])


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"kube-apiserver": "1.35.4", "kube-scheduler": "1.35.1", "etcd": "3.6.16"}, ""),
        ({"kube-apiserver": "1.35.4", "kube-scheduler": "1.34.4"}, "of different minor versions"),
        ({"kube-apiserver": "1.27.1", "kube-scheduler": "1.27.1"}, "too old for the lab"),
        ({"kube-apiserver": "", "kwok": "0.8.0"}, ""),
    ],
)
def test_versions_that_cannot_work_together(versions: dict[str, str], message: str) -> None:
    assert message in programs.mismatch(versions)
    assert bool(programs.mismatch(versions)) == bool(message)


def test_the_newest_kubernetes_provider_in_pulumis_own_cache_will_do(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_HOME", str(empty_path / "home"))
    for name in ("pulumi", "pulumi-language-python"):
        program(empty_path, name)
    assert Programs.find().kubernetes is None
    for version in ("4.9.0", "4.30.0"):
        folder = empty_path / "home" / "plugins" / f"resource-kubernetes-v{version}"
        folder.mkdir(parents=True)
        program(folder, KUBERNETES_PLUGIN)

    provider = Programs.find().kubernetes
    assert provider
    assert provider.parent.name == "resource-kubernetes-v4.30.0"


def test_a_missing_folder_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_LAB_BIN", str(tmp_path / "gone"))
    assert f"{tmp_path / 'gone'}, which is not a folder" in programs.missing(["etcd"])


def test_what_kwokctl_has_fetched_will_do(empty_path: Path) -> None:
    for age, name in enumerate(("old", "new")):
        folder = empty_path / "kwok" / "clusters" / name / "bin"
        folder.mkdir(parents=True)
        for program in ("etcd", "kwok-controller"):
            (folder / program).touch(mode=0o755)
        os.utime(folder, (age, age))

    paths = programs.locate(["etcd", "kwok", "kube-apiserver"])

    assert paths == {"etcd": folder / "etcd", "kwok": folder / "kwok-controller"}


def test_kwokctl_is_offered_where_it_is(empty_path: Path) -> None:
    (empty_path / "path").mkdir()
    program(empty_path / "path", "kwokctl")
    assert "let kwokctl fetch them: KWOK_KUBE_VERSION=v" in programs.missing(["etcd"])
