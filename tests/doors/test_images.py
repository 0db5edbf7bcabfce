"""Images of runners and tools, with a program called docker that keeps them in a file."""

from __future__ import annotations

import pytest

from paddock.build.cuda import manifest
from tests.support import docker_program
from tests.support.door import Door

STAND_IN = "a docker program that keeps images in a file"


@pytest.mark.door("images.build", STAND_IN)
@pytest.mark.parametrize("flags", [(), ("--cuda", "12.8", "--ubuntu", "22.04", "--progress", "plain")])
def test_the_image_of_cuda_programs_leaves_them_in_a_folder(inv: Door, flags: tuple[str, ...]) -> None:
    docker_program.install(inv)
    built = inv("images.build", "cuda-builder", "--run", *flags, "--output", "programs")
    assert built.returncode == 0, built.stderr
    assert "compiled  by CUDA 12.8 for sm_75 sm_90" in built.stdout
    assert set(manifest.read(inv.folder / "programs").files) == {docker_program.PROGRAM}
