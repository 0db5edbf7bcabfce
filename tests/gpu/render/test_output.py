"""Rendered files on disk: whole or not at all, and never over somebody else's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.render import File, Rendered, render, write
from paddock.gpu.render.output import RECORD
from paddock.gpu.render.rendered import headed, unedited
from tests.support.boxes import box, gpu

ONE_GPU, TWO_GPUS = box([gpu(0, minor=0)]), box([gpu(0, minor=0), gpu(1, minor=1)])


def content(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        file.relative_to(folder).as_posix(): (file.read_text(), file.stat().st_mode & 0o777)
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_files_are_written_once_with_their_modes(tmp_path: Path) -> None:
    rendered = Rendered("docker", (File("a.json", "{}\n"), headed("host/run.sh", "#!/bin/sh\ntrue\n", 0o755)))
    assert write(rendered, tmp_path / "new" / "folder") == tuple(
        tmp_path / "new/folder" / file.path for file in rendered.files
    )
    files = content(tmp_path / "new/folder")
    assert files.pop(RECORD)
    assert files == {file.path: (file.text, file.mode) for file in rendered.files}
    assert write(rendered, tmp_path / "new" / "folder") == ()


@pytest.mark.parametrize("target", ["docker", "docker-sdk", "compose", "cdi", "kubernetes", "slurm", "environment"])
def test_what_is_ours_is_replaced_when_the_gpus_change(tmp_path: Path, target: str) -> None:
    write(render(target, ONE_GPU), tmp_path)
    rendered = render(target, TWO_GPUS)
    assert write(rendered, tmp_path)
    assert {name: text for name, (text, _) in content(tmp_path).items() if name != RECORD} == {
        file.path: file.text for file in rendered.files
    }


@pytest.mark.parametrize("target", ["docker", "compose", "slurm"])
def test_a_file_that_was_changed_by_hand_is_kept_unless_forced(tmp_path: Path, target: str) -> None:
    first = write(render(target, ONE_GPU), tmp_path)[0]
    first.write_text(first.read_text() + "# mine\n")
    before = content(tmp_path)
    with pytest.raises(GpuInputError, match="was changed by hand"):
        write(render(target, TWO_GPUS), tmp_path)
    assert content(tmp_path) == before
    write(render(target, TWO_GPUS), tmp_path, force=True)
    assert first.read_text() == render(target, TWO_GPUS).files[0].text


@pytest.mark.parametrize("target", ["docker", "slurm"])
def test_a_foreign_file_is_kept_unless_forced(tmp_path: Path, target: str) -> None:
    rendered = render(target, ONE_GPU)
    path = tmp_path / rendered.files[-1].path
    path.write_text("NodeName=prod Gres=gpu:4\n")
    with pytest.raises(GpuInputError, match="not written by Paddock"):
        write(rendered, tmp_path)
    assert content(tmp_path) == {path.name: ("NodeName=prod Gres=gpu:4\n", path.stat().st_mode & 0o777)}
    write(rendered, tmp_path, force=True)
    assert path.read_text() == rendered.files[-1].text


def test_a_header_identifies_a_file_without_the_record(tmp_path: Path) -> None:
    write(render("slurm", ONE_GPU), tmp_path)
    (tmp_path / RECORD).unlink()
    write(render("slurm", TWO_GPUS), tmp_path)
    assert "gpu:h100:2" in (tmp_path / "slurm-gpu.conf").read_text()
    (tmp_path / RECORD).write_text("not JSON")
    write(render("slurm", ONE_GPU), tmp_path)
    assert "gpu:h100:1" in (tmp_path / "slurm-gpu.conf").read_text()


@pytest.mark.parametrize("line", ["# USER_CUSTOMIZED=true", "  #user_customized = TRUE"])
def test_a_customised_file_is_kept_even_when_forced(tmp_path: Path, line: str) -> None:
    write(render("slurm", ONE_GPU), tmp_path)
    path = tmp_path / "gres.conf"
    path.write_text(f"{path.read_text()}{line}\n")
    before = content(tmp_path)
    for force in (False, True):
        with pytest.raises(GpuInputError, match="is customised: it says USER_CUSTOMIZED=true"):
            write(render("slurm", TWO_GPUS), tmp_path, force)
        assert content(tmp_path) == before, "its neighbours neither"


def test_the_header_reveals_any_edit(tmp_path: Path) -> None:
    for file in (*render("slurm", TWO_GPUS).files, *render("cdi", TWO_GPUS).files[2:]):
        assert unedited(file.text)
        for place in (0, len(file.text) // 2, len(file.text)):
            assert not unedited(file.text[:place] + "x" + file.text[place:])
    assert unedited("a file\n") is None


@pytest.mark.parametrize("step", range(6))
def test_a_disk_failure_at_any_step_restores_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Three files are laid beside their places and then three are replaced; each of these fails once."""
    folder = tmp_path / "folder"
    write(render("slurm", ONE_GPU), folder)
    before = content(folder)
    remaining = step

    def failing(real):  # type: ignore[no-untyped-def]
        def call(*arguments, **named):  # type: ignore[no-untyped-def]
            nonlocal remaining
            remaining -= 1
            if remaining == -1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(Path, "replace", failing(Path.replace))
        with pytest.raises(GpuError, match="No space left on device"):
            write(render("slurm", TWO_GPUS), folder)
    assert content(folder) == before
    write(render("slurm", TWO_GPUS), folder)


def test_a_folder_that_could_not_be_filled_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GpuError, match="No space left"):
        write(render("slurm", ONE_GPU), tmp_path / "a" / "b")
    assert not [*tmp_path.iterdir()]


def test_a_place_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gres.conf").mkdir()
    with pytest.raises(GpuInputError, match=r"gres\.conf is a folder"):
        write(render("slurm", ONE_GPU), tmp_path)
    target = tmp_path / "elsewhere"
    target.write_text("theirs\n")
    (tmp_path / "docker-run.args").symlink_to(target)
    with pytest.raises(GpuInputError, match="is a link"):
        write(render("docker", ONE_GPU), tmp_path)
    write(render("docker", ONE_GPU), tmp_path, force=True)
    assert target.read_text() == "theirs\n"
    assert not (tmp_path / "docker-run.args").is_symlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuError, match="cannot write into"):
        write(render("docker", ONE_GPU), tmp_path / "file" / "below")
