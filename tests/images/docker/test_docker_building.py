"""Arguments that the client gets for a build and the output shown, with a stand-in client that prints real output."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.image_reference import BadReference
from paddock.images import delivery
from paddock.images.docker import Docker, building, space
from paddock.images.docker.show import Show
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Prepared, Recipe
from tests.support.docker import StandIn, stand_in

CLIENT = """
    answers = {
        "--version": f"Docker version {VERSION}, build 1",
        "version": "{}",
        "context": "desktop-linux",
        "network": "bridge" if BRIDGE else "none",
        "info": json.dumps({"DockerRootDir": "/", "Name": NAME}),
    }
    if argv[0] in answers:
        print(answers[argv[0]])
    elif argv[:2] == ["buildx", "version"]:
        sys.exit(VERSION.startswith("20"))
    else:
        print(SAID, file=sys.stderr)
        sys.exit(CODE)
"""
BY_NAME = """
    names = {word for call in calls for option, word in zip(call, call[1:]) if option == "--tag"}
    names |= {call[2] for call in calls if call[0] == "tag"}
    if argv[:2] == ["image", "inspect"] or (argv[0] == "tag" and argv[1] not in names):
        sys.exit(f"Error response from daemon: No such image: {argv[-1]}")
    if argv[:2] == ["image", "ls"]:
        sys.exit(print("a:1") if os.environ.get("LABELLED") in argv else 0)
"""
"""A store that knows an image by what it was named, as containerd's beside a buildx that tells another id."""


def client(
    folder: Path,
    output: str = "",
    code: int = 0,
    version: str = "29.0.1",
    bridge: bool = True,
    before: str = "",
    name: str = "another machine",
) -> StandIn:
    body = f"{before}{CLIENT}".replace("NAME", repr(name)).replace("SAID", repr(output)).replace("CODE", str(code))
    return stand_in(folder / "bin", body.replace("VERSION", repr(version)).replace("BRIDGE", str(bridge)))


def build(folder: Path, program: StandIn, **options: Any) -> None:
    (folder / "app").mkdir(exist_ok=True)
    (folder / "app" / "Dockerfile").touch()
    docker = Docker.find({"HOME": str(folder), "PATH": str(program.folder)})
    arguments: dict[str, Any] = {"tags": ["a:1"], "args": {}, "labels": {}, **options}
    docker.build(folder / "app", **arguments)


def build_arguments(program: StandIn) -> list[str]:
    (command,) = (call["argv"] for call in program.calls() if "--progress" in call["argv"])
    return list(command)


def test_a_stand_in_plugin_builds_in_the_engine_with_inline_cache(tmp_path: Path) -> None:
    program = client(tmp_path)

    build(tmp_path, program, args={"CUDA": "12.8"}, labels={"a": "b c"}, cache_from=["r/a:0"],
          no_cache=True, platform="linux/arm64")  # fmt: skip
    command = " ".join(build_arguments(program))
    assert command.startswith("buildx build --builder desktop-linux --load --cache-to type=inline --tag a:1 ")
    for words in ("--build-arg CUDA=12.8", "--label a=b c", "--cache-from r/a:0", "--no-cache",
                  "--platform linux/arm64"):  # fmt: skip
        assert words in command
    assert "--network" not in command


def test_a_stand_in_without_bridge_builds_on_the_hosts_network(tmp_path: Path) -> None:
    program = client(tmp_path, version="20.10.24", bridge=False)

    build(tmp_path, program)

    command = " ".join(build_arguments(program))
    assert command.startswith("build --build-arg BUILDKIT_INLINE_CACHE=1 ")
    assert "--network host" in command


PARSE = """\
#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s
Dockerfile:2
--------------------
   2 | >>> RUNN true
--------------------
ERROR: failed to build: failed to solve: dockerfile parse error on line 2: unknown instruction: RUNN (did you mean RUN?)

View build details: docker-desktop://dashboard/build/default/default/x"""
EXPORT = """\
#6 [2/2] RUN make
#6 DONE 1.0s

#7 exporting to image
#7 exporting layers
#7 ERROR: failed to copy: write /var/lib/docker/overlay2/x: no space left on device
ERROR: failed to solve: failed to copy: write /var/lib/docker/overlay2/x: no space left on device"""


@pytest.mark.parametrize(("output", "words"), [
    (PARSE, "app/Dockerfile: line 2 of the Dockerfile: unknown instruction: RUNN (did you mean RUN?)\n"),
    (EXPORT, "app/Dockerfile: the disk of the docker engine is full\n"),
    ("Killed", "docker said: Killed\n"),
    ("the moon is full", "app/Dockerfile: the moon is full\n"),
    ("", "app/Dockerfile: docker does not say why\n"),
])  # fmt: skip
def test_a_stand_in_build_that_fails_outside_of_the_dockerfiles_commands(
    tmp_path: Path, output: str, words: str
) -> None:
    with pytest.raises(BuildError) as error:
        build(tmp_path, client(tmp_path, output, code=1))

    assert words in str(error.value)
    log = Path(str(error.value).rpartition("the whole log: ")[2])
    assert log.read_text() == f"{output}\n"


STEP = "\n".join(
    ["#5 [2/2] RUN make", "#5 0.1 gcc: fatal", *(f"#5 0.2 line {number}" for number in range(50)),
     "#5 ERROR: executor failed running [/bin/sh -c make]: exit code: 7"]
)  # fmt: skip


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            STEP,
            ["cannot build images/app/Dockerfile: step [2/2] failed with exit code 7", "    command: RUN make",
             "    | gcc: fatal", "    | …", *(f"    | line {number}" for number in range(30, 50)),
             "    fix: correct this step of images/app/Dockerfile, or what it takes; run again where only a download"
             " failed"],
        ),
        (
            PARSE,
            ["cannot build images/app/Dockerfile: line 2 of the Dockerfile: unknown instruction: RUNN"
             " (did you mean RUN?)",
             "    expected: an instruction of Dockerfiles",
             "    fix: correct the line",
             "    docker said: dockerfile parse error on line 2: unknown instruction: RUNN (did you mean RUN?)"],
        ),
    ],
)  # fmt: skip
def test_a_failure_names_the_image_its_cause_and_a_fix(tmp_path: Path, output: str, expected: list[str]) -> None:
    program = client(tmp_path, output, code=1, before=BY_NAME)
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})

    with pytest.raises(BuildError) as error:
        delivery.build(docker, of_base(tmp_path, None), tmp_path, no_cache=False, progress="quiet")
    *lines, log = str(error.value).splitlines()
    assert lines == expected
    assert log.startswith("    the whole log: ")


def test_a_stand_in_engine_without_space_is_reported_for_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    program = client(tmp_path, before=BY_NAME, name=platform.node())
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})

    with pytest.raises(BuildInputError, match=r"^cannot build images/app: 1\.0 GB are free in /"):
        delivery.build(docker, of_base(tmp_path, None), tmp_path, no_cache=False, progress="quiet")


def test_only_the_logs_of_the_last_builds_stay(tmp_path: Path) -> None:
    folder = tmp_path / ".cache/paddock/build"
    folder.mkdir(parents=True)
    for number in range(building.LOGS_KEPT + 3):
        (folder / f"20200101T0000{number:02}.0-app.log").touch()

    build(tmp_path, client(tmp_path))

    remaining = sorted(path.name for path in folder.iterdir())
    assert len(remaining) == building.LOGS_KEPT
    assert remaining[0] == "20200101T000004.0-app.log"
    assert not remaining[-1].startswith("2020")


def test_a_missing_dockerfile_or_an_invalid_tag_starts_nothing(tmp_path: Path) -> None:
    program = client(tmp_path)
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})

    with pytest.raises(BuildInputError, match="no Dockerfile in"):
        docker.build(tmp_path, tags=["a:1"], args={}, labels={})
    with pytest.raises(BadReference, match="'A' is not an image reference"):
        build(tmp_path, program, tags=["A"])
    assert "--progress" not in json.dumps(program.calls())


def of_base(folder: Path, cuda: str | None) -> Prepared:
    (folder / "app").mkdir()
    (folder / "app" / "Dockerfile").touch()
    plan = Recipe("app", Base("debian:12", "sha256:1d", cuda), "amd64", "nocuda", {}, {})
    return Prepared(plan, folder / "app", "0123456789abcdef")


@pytest.mark.parametrize("works", [True, False])
def test_a_stand_in_store_by_name_keeps_only_the_final_name(tmp_path: Path, works: bool) -> None:
    def verify(image: str) -> None:
        tried.append(image)
        if not works:
            raise BuildError("it is no runner")

    tried: list[str] = []
    program, prepared = client(tmp_path, before=BY_NAME), of_base(tmp_path, None)
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})

    with contextlib.nullcontext() if works else pytest.raises(BuildError, match="it is no runner"):
        delivery.build(docker, prepared, tmp_path, no_cache=False, progress="quiet", verify=verify)
    calls = [call["argv"] for call in program.calls()]
    assert [call for call in calls if call[0] == "tag"] == ([["tag", *tried, prepared.local]] if works else [])
    assert calls[-1] == ["image", "rm", "--force", *tried]


@pytest.mark.parametrize(("cuda", "labelled", "fits"), [
    (None, "", True),
    ("12.8", "", False),
    ("12.8", "label=org.opencontainers.image.base.digest=sha256:1d", True),  # what was built on it is there
])  # fmt: skip
def test_a_cuda_base_missing_in_a_stand_in_engine_needs_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None, labelled: str, fits: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10e9))
    program, prepared = client(tmp_path, before=BY_NAME, name=platform.node()), of_base(tmp_path, cuda)
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder), "LABELLED": labelled})

    message = r"10.0 GB are free in /, and it needs about 15\.0 GB"
    with contextlib.nullcontext() if fits else pytest.raises(BuildInputError, match=message):
        delivery.build(docker, prepared, tmp_path, no_cache=True, progress="quiet")


def test_space_is_measured_where_containerd_keeps_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "CONTAINERD", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1e9 if folder == tmp_path else 1e12))
    info = {"Name": platform.node(), "DockerRootDir": "/", "DriverStatus": [["Supports d_type", "true"]]}
    space.check(info, 2_000_000_000, "cannot build")

    info["DriverStatus"] = [["driver-type", "io.containerd.snapshotter.v1"]]
    with pytest.raises(BuildInputError, match=rf"1\.0 GB are free in {tmp_path}, and it needs about 2\.0 GB"):
        space.check(info, 2_000_000_000, "cannot build")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_running_steps_and_a_pipe_completed_steps() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        with Show("auto", lambda: "    12 s  [2/5] RUN make", out) as show:
            show.line("#5 0.1 all that docker prints")
            show.ended("3.0 s", "[1/5] COPY [a-z] /x")

    assert "    12 s  [2/5] RUN make" in terminal.getvalue()
    assert "   3.0 s  [1/5] COPY [a-z] /x" in terminal.getvalue()
    assert pipe.getvalue() == "   3.0 s  [1/5] COPY [a-z] /x\n"
    # The live line is gone from the screen in the end.
    assert re.search(r"\x1b\[2K$", terminal.getvalue())


def test_plain_passes_all_of_docker_and_quiet_nothing() -> None:
    plain, quiet = io.StringIO(), Terminal()
    for progress, out in (("plain", plain), ("quiet", quiet)):
        with Show(progress, lambda: "now", out) as show:  # type: ignore[arg-type]
            show.line("#5 0.1 all that docker prints")
            show.ended("3.0 s", "[1/5] RUN true")

    assert plain.getvalue() == "#5 0.1 all that docker prints\n"
    assert quiet.getvalue() == ""
