"""Images of runners and tools, with a program called docker that keeps them in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.build.cuda import manifest
from tests.support import docker_program
from tests.support.door import Door, Here
from tests.support.waiting import until


@pytest.mark.door("images.build", "a docker program that keeps images in a file")
@pytest.mark.parametrize("flags", [(), ("--cuda", "12.8", "--ubuntu", "22.04", "--no-cache", "--progress", "plain")])
def test_the_image_of_cuda_programs_leaves_them_in_a_folder(inv: Door, flags: tuple[str, ...]) -> None:
    docker_program.install(inv)
    built = inv("images.build", "cuda-builder", "--run", *flags, "--architectures", "75,90", "--output", "programs")
    assert built.returncode == 0, built.stderr
    assert "compiled  by CUDA 12.8 for sm_75 sm_90" in built.stdout
    assert set(manifest.read(inv.folder / "programs").files) == {docker_program.PROGRAM}


def test_flags_of_another_image_are_refused_with_run(here: Here) -> None:
    for words in (("--with", "torch"), ("--push",), ("--build-arg", "CUDA=13.0")):
        code, _, errors = here("images.build", "cuda-builder", "--run", *words)
        assert code == 2
        assert f"{words[0]} and --run exclude each other\n    fix: " in errors


@pytest.mark.door("images.list", "a docker program that keeps images in a file")
@pytest.mark.door("images.size", "a docker program that keeps images in a file")
def test_an_image_is_built_once_listed_and_its_layers_shown(inv: Door) -> None:
    docker_program.install(inv)
    built = [json.loads(inv("build-image", "cuda-builder", "--json").stdout) for _ in range(2)]
    assert [document["built"] is None for document in built] == [False, True]
    listed = json.loads(inv("images.list", "--json").stdout)
    assert [image["image"] for image in listed["local"]] == [built[0]["image"]]
    shown = inv("images.size", "cuda-builder")
    assert (shown.returncode, "4.0 MB  RUN make" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.door("runner.push", "a docker program that keeps images in a file")
def test_a_runner_image_is_built_and_pushed(inv: Door, project: Path) -> None:
    state, env = docker_program.install(inv), {"PADDOCK_ROOT": str(project)}
    where = ("--registry", "reg.example/acme", "--platform", "linux/amd64")
    early = inv("runner.push", *where, env=env)
    assert (early.returncode, "was not built on this machine" in early.stderr) == (2, True)
    built = inv("build-runner", "--platform", "linux/amd64", env=env)
    assert built.returncode == 0, built.stderr
    pushed = inv("push-runner", *where, env=env)
    assert pushed.returncode == 0, pushed.stderr
    (call,) = docker_program.calls(state, "push")
    assert pushed.stdout.startswith(f"image   {call[1]}@sha256:")


@pytest.mark.door("slurm.build", "a docker program that keeps images in a file")
def test_the_image_of_a_slurm_node_gets_its_name(inv: Door, project: Path) -> None:
    state = docker_program.install(inv)
    built = inv("slurm.build", "--gpu-type", "nvidia", env={"PADDOCK_ROOT": str(project)})
    assert built.returncode == 0, built.stderr
    assert "paddock/slurm:nvidia" in {call[-1] for call in docker_program.calls(state, "tag")}


@pytest.mark.door("images.build", "a docker program that keeps images in a file", interrupted=True)
@pytest.mark.door("runner.build", "a docker program that keeps images in a file", interrupted=True)
@pytest.mark.door("slurm.build", "a docker program that keeps images in a file", interrupted=True)
@pytest.mark.parametrize("words", [("images.build", "cuda-builder", "--run"), ("runner.build",), ("slurm.build",)])
def test_ctrl_c_ends_a_build_and_says_what_stays(inv: Door, project: Path, words: tuple[str, ...]) -> None:
    state = docker_program.install(inv, hang="buildx build")
    building = inv.start(*words, "--platform", "linux/amd64", env={"PADDOCK_ROOT": str(project)})
    until((state / "hanging").exists, seconds=120)
    _, errors = inv.interrupted(building)
    assert "interrupted; steps that were built stay in Docker's cache" in errors
    assert "the same command goes on from there" in errors
    assert docker_program.calls(state, "tag") == []
    assert not (project / "cuda-build").exists()


@pytest.mark.door("wheel", "hatchling")
def test_the_wheel_of_a_node_is_left_where_the_user_stands(inv: Door) -> None:
    built = inv("wheel", "--json")
    assert built.returncode == 0, built.stderr
    (wheel,) = (inv.folder / "dist").iterdir()
    assert json.loads(built.stdout) == {"wheel": str(wheel), "bytes": wheel.stat().st_size}


@pytest.mark.door("mirror", "the stack dev of this checkout")
def test_what_fills_a_mirror_is_listed(inv: Door) -> None:
    printed = inv("mirror", "--json")
    assert printed.returncode == 0, printed.stderr
    copies = json.loads(printed.stdout)
    assert {chart["name"] for chart in copies["charts"]} >= {"gha-runner-scale-set-controller", "gha-runner-scale-set"}
    assert all(image["to"] is None for image in copies["images"]), "the stack has no mirror"
