"""Contents of a runner image, and requests that cannot be met, reported before anything is built."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.versions import ACTIONS_RUNNER, ACTIONS_RUNNER_SHA256
from paddock.console.output import PRINTED_JSON
from paddock.errors import PaddockError
from paddock.images import runner
from paddock.images.commands.build import Build, build
from paddock.images.cuda import manifest
from paddock.images.docker import Layer
from paddock.images.errors import BuildInputError
from paddock.images.recipes import bases, recipe
from paddock.images.recipes.bases import Base
from paddock.images.size import lines, sizes
from tests.support import checkout, docker
from tests.support.performing import performed

HADOLINT = os.environ.get("PADDOCK_HADOLINT") or shutil.which("hadolint")  # before the environment is cleaned
PLAIN = Base("debian:bookworm", "sha256:1d", None)


@pytest.mark.parametrize(("architecture", "archive"), [("amd64", "x64"), ("arm64", "arm64")])
def test_the_runner_is_the_pinned_one_of_the_architecture(
    root: Path, architecture: recipe.Architecture, archive: str
) -> None:
    plan = runner.make(root, bases.published("12.8", "22.04"), architecture)
    assert plan.version == f"12.8-runner{ACTIONS_RUNNER}"
    assert plan.args["RUNNER_URL"].endswith(f"/actions-runner-linux-{archive}-{ACTIONS_RUNNER}.tar.gz")
    assert plan.args["RUNNER_SHA256"] == ACTIONS_RUNNER_SHA256[archive]
    assert plan.args["CONTAINER_HOOKS"].startswith(f"ghcr.io/actions/actions-runner:{ACTIONS_RUNNER}@sha256:")
    assert "@sha256:" in plan.args["BASE"]


def test_pytorch_is_a_part_that_is_asked_for(root: Path, tmp_path: Path) -> None:
    base = bases.published("12.8", "24.04")
    plain, larger = runner.make(root, base, "amd64"), runner.make(root, base, "amd64", torch=True)
    assert re.fullmatch(rf"12\.8-torch\d+\.\d+\.\d+-runner{re.escape(ACTIONS_RUNNER)}", larger.version)
    assert (plain.args.get("FRAMEWORKS"), larger.args["FRAMEWORKS"]) == (None, "pytorch")


@pytest.mark.parametrize(("flags", "message"), [
    ({"with_": "tensorflow"}, "--with tensorflow: not a part of runner-gpu"),
    ({"with_": "torch", "ubuntu": "22.04"}, "--with torch: Ubuntu 22.04 has Python 3.10"),
])  # fmt: skip
def test_a_part_that_cannot_be_had_is_explained(root: Path, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildInputError, match=message):
        performed(build, root, Build(name="runner", **flags))


@pytest.mark.parametrize(("machine", "platform", "nodes", "expected"), [
    ("aarch64", None, (), "arm64"),
    ("aarch64", None, ("amd64", "amd64"), "amd64"),
    ("x86_64", None, ("amd64", "arm64"), "amd64"),
    ("x86_64", "linux/arm64", ("amd64",), "arm64"),
])  # fmt: skip
def test_an_image_is_for_the_nodes_then_for_this_machine(
    machine: str, platform: str | None, nodes: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert recipe.architecture(platform, nodes) == expected


def test_an_image_that_the_nodes_cannot_run_is_not_pinned(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    refused = r"linux/arm64 cannot be pinned in Pulumi.dev.yaml: the nodes of \w+ are linux/amd64\n.*\n    fix: leave"
    with pytest.raises(BuildInputError, match=refused):
        performed(build, root, Build(name="runner", pin="dev", platform="linux/arm64"))
    for flags in ({"pin": "dev"}, {"stack": "dev", "platform": "linux/arm64"}):
        with pytest.raises(BuildInputError, match="docker"):  # nothing was wrong before an engine is looked for
            performed(build, root, Build(name="runner", **flags))


def test_a_base_without_cuda_says_so_in_the_tag(root: Path) -> None:
    assert runner.make(root, PLAIN, "amd64").version == f"nocuda-runner{ACTIONS_RUNNER}"


def test_the_base_is_content_even_where_its_name_stays(root: Path, tmp_path: Path) -> None:
    tags = {
        recipe.prepare(
            runner.make(root, Base("mine:latest", identity, None), "amd64"),
            {".": root / "images" / "runner-gpu"},
            tmp_path / identity,
        ).tag
        for identity in ("1", "2")
    }
    assert len(tags) == 2


def test_an_image_knows_its_own_name(root: Path, tmp_path: Path) -> None:
    parts = {".": root / "images" / "runner-gpu"}
    prepared = recipe.prepare(runner.make(root, PLAIN, "amd64"), parts, tmp_path / "a")
    assert prepared.arguments["PADDOCK_IMAGE"] == f"runner-gpu:{prepared.tag}"
    assert "PADDOCK_IMAGE" not in prepared.recipe.args, "or its name would be part of what names it"
    other = recipe.prepare(runner.make(root, PLAIN, "amd64"), {".": root / "images" / "slurm"}, tmp_path / "b")
    assert "PADDOCK_IMAGE" not in other.arguments


def test_an_argument_of_a_user_overrides_the_default(root: Path) -> None:
    plan = runner.make(root, PLAIN, "amd64", ["RUNNER_URL=http://mirror/a=b.tar.gz", "PACKAGES_AS_OF=2030-01-01"])
    assert plan.args["RUNNER_URL"] == "http://mirror/a=b.tar.gz"
    assert plan.args["PACKAGES_AS_OF"] == "2030-01-01"


@pytest.mark.parametrize("arguments", [[], ["PACKAGES_AS_OF=2030-01-01"]])
def test_a_label_holds_the_date_of_the_packages(root: Path, tmp_path: Path, arguments: list[str]) -> None:
    prepared = recipe.prepare(
        runner.make(root, PLAIN, "amd64", arguments), {".": recipe.folder(root, runner.NAME)}, tmp_path
    )
    line_of_date = next(
        line for line in (tmp_path / "Dockerfile").read_text().splitlines() if "ARG PACKAGES_AS_OF=" in line
    )
    (day,) = arguments or [line_of_date.removeprefix("ARG ")]
    assert f"PACKAGES_AS_OF={recipe.labels_of(prepared, root)['dev.paddock.packages']}" == day


def test_a_secret_in_the_address_of_the_repository_is_no_label(tmp_path: Path) -> None:
    (tmp_path / "images" / "small").mkdir(parents=True)
    (tmp_path / "images" / "small" / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    for words in (["init", "-q"], ["remote", "add", "origin", "https://me:ghp_sec@ret@example.com/acme/fleet.git"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    plan = recipe.plain(tmp_path, "small", PLAIN, "amd64")
    labels = recipe.labels_of(recipe.prepare(plan, {".": recipe.folder(tmp_path, "small")}, tmp_path / "to"), tmp_path)
    assert labels["org.opencontainers.image.source"] == "https://example.com/acme/fleet.git"
    assert labels["org.opencontainers.image.base.name"] == "debian:bookworm"
    assert labels["dev.paddock.packages"] == ""


def test_labels_name_the_commit_and_mark_a_modified_checkout(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        result = subprocess.run(["git", "-C", str(tmp_path), *words], capture_output=True, text=True, check=True)
        return result.stdout.strip()

    def prepare(into: str, base: Base = PLAIN) -> tuple[str, dict[str, str]]:
        plan = recipe.plain(tmp_path, "small", base, "amd64")
        prepared = recipe.prepare(plan, {".": recipe.folder(tmp_path, "small")}, tmp_path / "ignored" / into)
        return prepared.tag, recipe.labels_of(prepared, tmp_path)

    dockerfile = tmp_path / "images" / "small" / "Dockerfile"
    dockerfile.parent.mkdir(parents=True)
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\n")
    (tmp_path / "README.md").touch()
    (tmp_path / ".gitignore").write_text("ignored\n")
    git("init", "-q")
    assert prepare("0")[1]["org.opencontainers.image.revision"] == ""
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")

    tag, clean = prepare("1")
    assert clean["org.opencontainers.image.revision"] == commit
    assert clean["dev.paddock.cuda"] == ""
    assert prepare("2", bases.published("12.8", "22.04"))[1]["dev.paddock.cuda"] == "12.8"
    (tmp_path / "README.md").write_text("changed")
    same, changed = prepare("3")
    assert (same, changed["org.opencontainers.image.revision"]) == (tag, f"{commit}-dirty")
    git("checkout", "-q", "README.md")
    (dockerfile.parent / "new").touch()
    other, untracked = prepare("4")
    assert other != tag
    assert untracked["org.opencontainers.image.revision"] == f"{commit}-dirty"


def programs(folder: Path, platform: str) -> None:
    folder.mkdir()
    (folder / "cuda-smoke").write_bytes(b"program")
    files = {"cuda-smoke": {"sha256": hashlib.sha256(b"program").hexdigest(), "bytes": 7}}
    document = {"schema": 2, "platform": platform, "toolkit": "12.8", "architectures": ["75"], "glibc": "2.35"}
    (folder / "manifest.json").write_text(json.dumps(document | {"files": files}))


def test_the_checkouts_cuda_programs_are_included_if_they_match(tmp_path: Path) -> None:
    assert manifest.of_checkout(tmp_path, "linux/amd64") == {}
    folder = tmp_path / "cuda-build"
    programs(folder, "linux/amd64")
    (folder / "left-over").touch()
    assert set(manifest.of_checkout(tmp_path, "linux/amd64")) == {"cuda-smoke", "manifest.json"}
    with pytest.raises(BuildInputError, match="are for linux/amd64, and the image is for linux/arm64"):
        manifest.of_checkout(tmp_path, "linux/arm64")
    (folder / "cuda-smoke").write_bytes(b"another")
    with pytest.raises(BuildInputError, match="cuda-smoke is not what was built"):
        manifest.of_checkout(tmp_path, "linux/amd64")


ENGINE = """
    said = {"image inspect": json.dumps([{"Id": "sha256:1", "Size": 1, "Created": "now", "Config": {}}]),
            "info --format": "{}", "--version": "Docker version 29.0.1, build 1"}
    print(said.get(" ".join(argv[:2]), ""), end="")
"""


def test_a_report_mentions_missing_cuda_programs_with_stand_in_docker(
    root: Path, tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = checkout.copy(root, tmp_path / "project")
    shutil.copy(lock, project / "locks" / "base.txt")
    monkeypatch.setenv("PATH", docker.stand_in(tmp_path / "bin", ENGINE).path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def report(**flags: Any) -> str:
        performed(build, project, Build(name="runner", platform="linux/arm64", **flags))
        return capsys.readouterr().out

    without = (
        "cuda    without programs, since there is no cuda-build/; to make it:"
        " ./inv images.build cuda-builder --run --platform linux/arm64\n"
    )
    assert without in report()
    assert json.loads(report(json=PRINTED_JSON))["cuda_programs"] is None
    programs(project / "cuda-build", "linux/arm64")
    assert "cuda-build" not in report()
    assert json.loads(report(json=PRINTED_JSON))["cuda_programs"] == ["cuda-smoke"]


@pytest.mark.parametrize(("name", "flags", "message"), [
    (
        "runer-gpu",
        {},
        r"there is no image runer-gpu\n.*cuda-builder, .*runner-gpu, slurm\n.*did you mean runner-gpu\?",
    ),
    ("../images/runner-gpu", {}, "there is no image ../images/runner-gpu"),
    ("runner-gpu", {"base": "debian:12", "cuda": "12.8"}, "--cuda and --base exclude each other"),
    ("runner-gpu", {"base": "debian:12", "ubuntu": "22.04"}, "--ubuntu and --base exclude each other"),
    ("runner-gpu", {"push": True}, r"nowhere to push to\n.*\n    fix: --registry HOST/PREFIX, or --stack dev"),
    ("runner-gpu", {"registry": "localhost:5000"}, "nothing is to be pushed"),
    ("runner-gpu", {"push": True, "registry": "bad host"}, "--registry 'bad host' does not name a registry"),
    ("runner-gpu", {"push": True, "registry": "ghcr.io/Acme"}, r"not name a registry\n    expected: HOST\[/PREFIX\]"),
    ("runner-gpu", {"push": True, "registry": "https://ghcr.io/acme/"}, "docker"),
    ("cuda-builder", {"pin": "dev"}, r"--pin does not apply to cuda-builder\n.*--pin with runner-gpu or gateway"),
    ("slurm", {"cuda": "12.8"}, "--cuda does not apply to slurm"),
    ("wheel", {"push": True}, "--push does not apply to wheel"),
    ("cuda-builder", {"output": Path("programs")}, "--output says what the image's run does"),
    ("cuda-builder", {"run": True, "build_arg": ("CUDA=13.0",)}, "--build-arg and --run exclude each other"),
    ("cuda-builder", {"run": True, "with_": "torch"}, "--with does not apply to cuda-builder"),
    ("runner-gpu", {"platform": "linux/riscv64"}, r"not built for linux/riscv64\n    expected: linux/amd64 or"),
    ("runner-gpu", {"platform": "arm64"}, "not built for arm64"),
    ("runner-gpu", {"cuda": "12.88"}, r"there is no CUDA 12.88\n.*12\.8"),
    ("runner-gpu", {"cuda": "12.4", "ubuntu": "24.04"}, "no base image has CUDA 12.4 on Ubuntu 24.04"),
    ("runner-gpu", {}, "docker"),
])  # fmt: skip
def test_an_impossible_request_is_refused_before_the_engine_is_used(
    root: Path,
    name: str,
    flags: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PaddockError, match=message) as raised:
        performed(build, root, Build(name=name, json=PRINTED_JSON, **flags))
    assert raised.value.exit_code == 2
    assert "\n    fix: " in str(raised.value)
    assert json.loads(capsys.readouterr().out) == {"error": str(raised.value)}


@pytest.mark.parametrize(("word", "message"), [
    ("RUNNER_SHA256", "gives no value"),
    ("=1", "gives no name"),
    ("BASE=debian:12", r"\n    fix: --base debian:12"),
    ("RUNNER_SHA=1", r"no argument RUNNER_SHA\n.*RUNNER_URL, .*\n    fix: did you mean RUNNER_SHA256\?"),
])  # fmt: skip
def test_an_unknown_argument_is_reported(root: Path, word: str, message: str) -> None:
    with pytest.raises(BuildInputError, match=message):
        runner.make(root, PLAIN, "amd64", [word])


def test_layers_are_listed_with_size_and_instruction() -> None:
    layers = [
        Layer(0, "USER 1001"),
        Layer(200_000, "COPY hooks/ /opt/paddock/hooks/ # buildkit"),
        Layer(640_100_000, "RUN |1 DAY=1 /bin/bash -euo pipefail -c bash /mnt/packages.sh # buildkit"),
        Layer(4_210_000_000, "RUN /bin/sh -c apt-get install cuda # buildkit"),
        Layer(77_900_000, ""),
    ]
    assert lines(sizes(layers)) == [
        "  4.21 GB  RUN apt-get install cuda",
        " 640.1 MB  RUN bash /mnt/packages.sh",
        "  77.9 MB  files of the base",
        "   0.2 MB  COPY hooks/ /opt/paddock/hooks/",
    ]


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint on PATH or in PADDOCK_HADOLINT")
def test_dockerfiles_are_as_hadolint_wants_them(root: Path) -> None:
    files = sorted((root / "images").glob("*/Dockerfile"))
    result = subprocess.run([str(HADOLINT), *files], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")
