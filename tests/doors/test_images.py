"""Images of runners and tools, with a program called docker that keeps them in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from paddock.images.cuda import manifest
from tests.support import docker_program
from tests.support.door import Door, Here
from tests.support.fleets import serve
from tests.support.waiting import until


@pytest.mark.door("images.build", "a docker program that keeps images in a file")
@pytest.mark.parametrize("flags", [(), ("--cuda", "12.8", "--ubuntu", "22.04", "--no-cache", "--progress", "plain")])
def test_the_image_of_cuda_programs_leaves_them_in_a_folder(inv: Door, flags: tuple[str, ...]) -> None:
    docker_program.install(inv)
    built = inv("images.build", "cuda-builder", "--run", *flags, "--architectures", "75,90", "--output", "programs")
    assert built.returncode == 0, built.stderr
    assert "compiled  by CUDA 12.8 for sm_75 sm_90" in built.stdout
    assert set(manifest.read(inv.folder / "programs").files) == {docker_program.PROGRAM}


REFUSED = {
    ("--cuda", "13.0", "--architectures", "7.0"): "CUDA 13.0 no longer compiles for sm_70",
    ("--cuda", "13.0", "--architectures", "70,75"): "the last that does is 12.9",
    ("--cuda", "13.0", "--ubuntu", "24.04", "--architectures", "sm_70"): "fix: --cuda 12.9, or leave sm_70 out",
    ("--cuda", "13.0.1", "--architectures", "compute_70"): "CUDA 13.0 no longer compiles for sm_70",
    ("--base", "nvidia/cuda:13.0.1-devel-ubuntu24.04", "--architectures", "7.0"): "the last that does is 12.9",
    ("--cuda", "12.4", "--architectures", "sm_120"): "the first that does is 12.8",
    ("--cuda", "12.8", "--architectures", "sm_91"): "did you mean sm_90?",
    ("--cuda", "12.8", "--architectures", "90,volta"): "no GPU of the catalogue has the architecture volta",
    ("--cuda", "12.8", "--base", "nvidia/cuda:12.8.1-devel-ubuntu24.04"): "--cuda and --base exclude each other",
}


@pytest.mark.parametrize("flags", REFUSED, ids=" ".join)
def test_programs_that_cannot_be_compiled_are_refused_before_docker(
    inv: Door, here: Here, flags: tuple[str, ...]
) -> None:
    state = docker_program.install(inv)
    code, out, err = here("images.build", "cuda-builder", "--run", *flags, "--output", "programs")
    assert (code, out) == (2, "")
    assert REFUSED[flags] in err
    assert "\n    expected: " in err
    assert not (state / "calls").exists()


@pytest.mark.parametrize("flags", [
    (),
    ("--cuda", "12.8", "--ubuntu", "22.04"),
    ("--base", "nvidia/cuda:12.8.1-devel-ubuntu22.04"),
    ("--base", "registry.example/compilers:1"),
    ("--platform", "linux/arm64"),
    ("--architectures", "7.5,9.0"),
])  # fmt: skip
def test_each_flag_of_the_page_reaches_docker(inv: Door, here: Here, flags: tuple[str, ...]) -> None:
    state = docker_program.install(inv)
    code, out, err = here("images.build", "cuda-builder", "--run", *flags, "--output", str(inv.folder / "programs"))
    assert (code, "compiled  by CUDA" in out) == (0, True), err
    (built,) = (call for call in docker_program.calls(state) if "--tag" in call)
    if "--architectures" in flags:
        assert "ARCHITECTURES=75 90" in built


@pytest.mark.door("images.list", "a docker program that keeps images in a file")
def test_an_image_is_built_once_listed_and_its_layers_shown(inv: Door) -> None:
    docker_program.install(inv)
    built = [json.loads(inv("images.build", "cuda-builder", "--json").stdout) for _ in range(2)]
    assert [document["built"] is None for document in built] == [False, True]
    listed = json.loads(inv("images.list", "--json").stdout)
    assert [image["image"] for image in listed["local"]] == [built[0]["image"]]
    shown = inv("images.list", "cuda-builder")
    assert (shown.returncode, "4.0 MB  RUN make" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.door("images.push", "a docker program that keeps images in a file")
def test_a_runner_image_is_built_and_pushed(inv: Door, project: Path) -> None:
    state, env = docker_program.install(inv), {"PADDOCK_ROOT": str(project)}
    where = ("--registry", "reg.example/acme", "--platform", "linux/amd64")
    early = inv("images.push", *where, env=env)
    assert (early.returncode, "was not built on this machine" in early.stderr) == (2, True)
    built = inv("build-runner", "--platform", "linux/amd64", env=env)
    assert built.returncode == 0, built.stderr
    pushed = inv("push-runner", *where, env=env)
    assert pushed.returncode == 0, pushed.stderr
    (call,) = docker_program.calls(state, "push")
    assert pushed.stdout.startswith(f"image   {call[1]}@sha256:")


@pytest.mark.door("images.build", "a docker program that keeps images in a file")
def test_the_image_of_a_slurm_node_gets_its_name(inv: Door, project: Path) -> None:
    state = docker_program.install(inv)
    built = inv("images.build", "slurm", "--gpu-type", "nvidia", env={"PADDOCK_ROOT": str(project)})
    assert built.returncode == 0, built.stderr
    assert "paddock/slurm:nvidia" in {call[-1] for call in docker_program.calls(state, "tag")}


@pytest.mark.door("images.build", "a docker program that keeps images in a file")
def test_the_image_of_the_gateway_is_debians_with_its_lock(inv: Door, project: Path) -> None:
    docker_program.install(inv)
    env = {"PADDOCK_ROOT": str(project)}
    built = inv("images.build", "gateway", "--platform", "linux/amd64", "--json", env=env)
    assert built.returncode == 0, built.stderr
    document = json.loads(built.stdout)
    assert document["base"].startswith("debian:bookworm-slim@sha256:")
    (project / "locks" / "base.txt").write_text("# another\n")
    assert (
        json.loads(inv("images.build", "gateway", "--platform", "linux/amd64", "--json", env=env).stdout)["content"]
        == document["content"]
    )


def test_the_image_of_the_gateway_is_pinned_where_models_are_served(inv: Door, project: Path) -> None:
    docker_program.install(inv)
    stack = project / "Pulumi.dev.yaml"
    words = ("images.build", "gateway", "--pin", "dev", "--registry", "reg.example/acme", "--json")
    refused = inv(*words[:-1], env={"PADDOCK_ROOT": str(project)})
    assert (refused.returncode, "Pulumi.dev.yaml has no serving:" in refused.stderr) == (2, True)
    serve(stack)
    built = inv(*words, env={"PADDOCK_ROOT": str(project)})
    assert built.returncode == 0, built.stderr
    image = json.loads(built.stdout)["image"]
    assert image.startswith("reg.example/acme/gateway:py3-")
    assert yaml.safe_load(stack.read_text())["config"]["paddock:fleet"]["serving"]["gateway"]["image"] == image


@pytest.mark.door("images.build", "a docker program that keeps images in a file", interrupted=True)
@pytest.mark.parametrize("words", [("cuda-builder", "--run"), ("runner",), ("slurm",)])
def test_ctrl_c_ends_a_build_and_says_what_stays(inv: Door, project: Path, words: tuple[str, ...]) -> None:
    state = docker_program.install(inv, hang="buildx build")
    building = inv.start("images.build", *words, "--platform", "linux/amd64", env={"PADDOCK_ROOT": str(project)})
    until((state / "hanging").exists, seconds=120)
    _, errors = inv.interrupted(building)
    assert "interrupted; steps that were built stay in Docker's cache" in errors
    assert "the same command continues from there" in errors
    assert docker_program.calls(state, "tag") == []
    assert not (project / "cuda-build").exists()


@pytest.mark.door("images.build", "hatchling")
def test_the_wheel_of_a_node_is_left_where_the_user_stands(inv: Door) -> None:
    built = inv("images.build", "wheel", "--json")
    assert built.returncode == 0, built.stderr
    (wheel,) = (inv.folder / "dist").iterdir()
    assert json.loads(built.stdout) == {"schema": 1, "wheel": str(wheel), "bytes": wheel.stat().st_size}


@pytest.mark.door("images.mirror", "the stack dev of this checkout")
def test_what_fills_a_mirror_is_listed(inv: Door) -> None:
    printed = inv("images.mirror", "--json")
    assert printed.returncode == 0, printed.stderr
    copies = json.loads(printed.stdout)
    assert {chart["name"] for chart in copies["charts"]} >= {"gha-runner-scale-set-controller", "gha-runner-scale-set"}
    assert all(image["to"] is None for image in copies["images"]), "the stack has no mirror"
