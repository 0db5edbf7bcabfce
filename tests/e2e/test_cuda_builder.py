"""The CUDA programs, compiled by the real nvcc in the real engine; one test wants a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.images.commands.build import Build, build
from paddock.images.cuda import manifest
from paddock.images.cuda.builder import architectures
from paddock.images.docker import Docker, Finished
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import recipe
from tests.support.docker_engine import engine, kept, tools_base
from tests.support.door import Door
from tests.support.performing import performed

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cuda-builder")]

CUDA = "13.0"
WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cuobjdump==13.2.86",
)
BASE = "paddock-test/cuda-builder-base:13.0-2"


@pytest.fixture(scope="module")
def docker() -> Docker:
    return engine()


@pytest.fixture(scope="module")
def base() -> str:
    """A Debian with a C++ compiler and the toolkit."""
    return kept(BASE, _with_toolkit)


def _with_toolkit(docker: Docker) -> None:
    tools = tools_base()
    with tempfile.TemporaryDirectory() as folder:
        _toolkit(Path(folder))
        (Path(folder) / "Dockerfile").write_text(
            f"FROM {tools}\n"
            "COPY nvidia/cu13 /usr/local/cuda\n"
            "RUN ln -s lib /usr/local/cuda/lib64\n"
            f"ENV CUDA_VERSION={CUDA} PATH=/usr/local/cuda/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        )
        docker.build(Path(folder), tags=[BASE], args={}, labels={}, progress="quiet")


def _toolkit(folder: Path) -> None:
    """Installed here, since a container may not trust what stands between it and the package index."""
    words = ["pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--target", str(folder), *WHEELS]
    result = subprocess.run([sys.executable, "-m", "uv", *words], capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"no nvcc: its wheels cannot be had: {result.stderr.strip().splitlines()[-1:]}")


@dataclass(frozen=True, slots=True)
class Programs:
    folder: Path
    image: str


@pytest.fixture(scope="module")
def built(root: Path, base: str, docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Programs for every architecture of the toolkit; the engine's cache keeps the compiler's work for later."""
    folder = tmp_path_factory.mktemp("built") / "cuda-build"
    programs = Programs(folder, _run(root, base, folder)["image"])
    yield programs
    docker.remove(programs.image)


def _run(root: Path, base: str, folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as user:
        inv = Door(root, Path(user))
        done = inv(
            "images.build", "cuda-builder", "--run", "--base", base, "--output", str(folder), "--json", seconds=1200
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_folder_holds_what_its_manifest_says(built: Programs) -> None:
    build = manifest.read(built.folder)
    assert build.toolkit == CUDA
    assert build.architectures == architectures(CUDA)
    assert sorted(path.name for path in built.folder.iterdir()) == ["cuda-smoke", "manifest.json"]
    assert {path.stat().st_uid for path in built.folder.iterdir()} == {os.getuid()}
    assert (built.folder / "cuda-smoke").stat().st_mode & 0o111 == 0o111


def test_the_program_has_code_for_each_and_ptx_for_the_newest(docker: Docker, built: Programs) -> None:
    listed = _in_base(docker, built, "cuobjdump", "--list-elf", "--list-ptx", "/built/cuda-smoke").stdout
    assert set(re.findall(r"\.sm_(\d+)\.cubin", listed)) == set(architectures(CUDA))
    assert set(re.findall(r"\.sm_(\d+)\.ptx", listed)) == {architectures(CUDA)[-1]}


def test_the_program_brings_all_but_the_c_library_along(docker: Docker, built: Programs) -> None:
    lines = _in_base(docker, built, "ldd", "/built/cuda-smoke").stdout.splitlines()
    libraries = {re.split(r"[.-]", line.split()[0].rpartition("/")[2])[0] for line in lines}
    assert libraries <= {"linux", "ld", "libc", "libm", "libdl", "libpthread", "librt"}


def test_the_manifest_names_what_runs_it(docker: Docker, built: Programs) -> None:
    symbols = _in_base(docker, built, "objdump", "-T", "/built/cuda-smoke").stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(\d+\.\d+)", symbols)}
    build = manifest.read(built.folder)
    assert (build.platform, build.glibc) == (f"linux/{recipe.architecture(None)}", ".".join(map(str, max(versions))))


def test_the_program_reports_its_version_and_the_missing_driver(docker: Docker, built: Programs) -> None:
    result = _in_base(docker, built, "/built/cuda-smoke", "--list")
    assert result.code == 0
    assert json.loads(result.stdout) == {
        "schema": 1,
        "toolkit": CUDA,
        "architectures": [*architectures(CUDA)],
        "ptx": architectures(CUDA)[-1],
    }
    tested = _in_base(docker, built, "/built/cuda-smoke")
    assert tested.code == 3
    report = json.loads(tested.stdout)
    assert (report["ok"], report["devices"], report["error"]["kind"]) == (False, [], "no_driver")


@pytest.mark.door("images.build", "the real Docker engine, and nvcc of NVIDIA's wheels")
def test_a_second_build_compiles_nothing(root: Path, base: str, built: Programs, tmp_path: Path) -> None:
    document = _run(root, base, tmp_path)
    assert (document["built"], document["image"]) == (False, built.image)
    assert document["manifest"] == json.loads((built.folder / "manifest.json").read_text())


SMALL = {
    "kernel.cu": "namespace { __global__ void none() {} }\nvoid run() { none<<<1, 1>>>(); }\n",
    "main.cpp": "void run();\nint main() { run(); }\n",
}
"""With a name of its own, which nvcc makes unique."""


@pytest.mark.parametrize("ours", [False, pytest.param(True, marks=pytest.mark.explore)])
def test_the_same_sources_give_the_same_bytes(
    docker: Docker, root: Path, base: str, tmp_path: Path, ours: bool
) -> None:
    sources = recipe.folder(root, "cuda-builder")
    if not ours:
        (tmp_path / "cuda-smoke").mkdir()
        for name, text in SMALL.items():
            (tmp_path / "cuda-smoke" / name).write_text(text)
        sources = Path(shutil.copy(sources / "compile.sh", tmp_path)).parent

    def compiled(out: str) -> dict[str, Any]:
        result = docker.run(
            base,
            ["/sources/compile.sh", out],
            volumes={sources: "/sources:ro"},
            environment={"ARCHITECTURES": "75"},
        )
        return dict(json.loads(result.stdout)["files"])

    with ThreadPoolExecutor() as both:
        first, second = both.map(compiled, ("/tmp/one", "/tmp/another"))
    assert first == second


def test_the_image_by_itself_leaves_files_of_who_runs_it(docker: Docker, built: Programs, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes a folder that is another user's")
    os.chown(tmp_path, 4242, 4243)
    assert docker.run(built.image, volumes={tmp_path: "/output"}, user="4242:4243").code == 0
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()} == {(4242, 4243)}
    assert manifest.read(tmp_path) == manifest.read(built.folder)


def test_an_unwritable_folder_is_reported_by_the_image(docker: Docker, built: Programs, tmp_path: Path) -> None:
    alone = docker.run(built.image)
    assert (alone.code, "--volume" in alone.stderr) == (2, True)
    result = docker.run(built.image, volumes={tmp_path: "/output"})
    assert result.code == 2
    assert re.search(rf"user 65534 may not write .* user {os.getuid()}\n    fix: docker run --user", result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_architecture_dropped_by_the_base_fails_the_build(docker: Docker, root: Path, base: str) -> None:
    flags = Build(name="cuda-builder", run=True, base=base, progress="quiet", architectures=("7.0",))
    with pytest.raises(BuildInputError, match=r"CUDA 13\.0 no longer compiles for sm_70"):
        performed(build, root, flags)
    with pytest.raises(BuildError, match=r"CUDA 13\.0 does not compile for sm_70"):
        docker.build(
            recipe.folder(root, "cuda-builder"),
            tags=[],
            args={"BASE": base, "ARCHITECTURES": "70"},
            labels={},
            progress="quiet",
        )
    with pytest.raises(BuildError, match=r"this is CUDA 13\.0, not the 12\.8"):
        docker.build(
            recipe.folder(root, "cuda-builder"),
            tags=[],
            args={"BASE": base, "CUDA": "12.8"},
            labels={},
            progress="quiet",
        )


def test_a_gpu_of_this_machine_passes(root: Path, tmp_path: Path) -> None:
    if not Path("/proc/driver/nvidia/version").exists():
        pytest.skip("no NVIDIA driver on this machine")
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on PATH")
    subprocess.run([recipe.folder(root, "cuda-builder") / "compile.sh", tmp_path], check=True, capture_output=True)
    result = subprocess.run([tmp_path / "cuda-smoke", "--all"], capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert result.returncode == 0, report
    assert report["devices"]
    assert all(len(gpu["tests"]) == 5 for gpu in report["devices"])


def _in_base(docker: Docker, built: Programs, *command: str) -> Finished:
    return docker.run(BASE, command, volumes={built.folder: "/built:ro"}, timeout_s=60)
