"""The runner image, built by the real engine on a real Debian, pushed to a real registry and pinned.

A small stand-in with the layout of GitHub's runner takes its place, and an image with two files that of GitHub's.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.versions import ACTIONS_RUNNER
from paddock import __version__
from paddock.fleet import load
from paddock.images import runner
from paddock.images.docker import Docker, Finished
from paddock.images.errors import BuildError
from paddock.images.recipes.bases import Base
from tests.support import checkout, docker_engine, runner_stand_in
from tests.support.door import Door

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("runner-image")]

SECRET = "made-up-secret-7c41e9"
PACKAGES_AGAIN = Path(docker_engine.__file__).with_name("docker_packages.sh")


class Refused(Exception):
    """A task that ended with an exit code, and its words."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass(frozen=True)
class Site:
    """A checkout with all that a build of the runner image needs, and the registry it pushes to."""

    docker: Docker
    inv: Door
    project: Path
    registry: str
    runner_url: str
    runner_folder: Path
    """What is served beside the runner's archive."""
    runner_sum: str
    tags: set[str] = field(default_factory=set)
    """Names that builds of these tests left in the engine."""

    @property
    def stack(self) -> Path:
        return self.project / "Pulumi.dev.yaml"

    def flags(self, sha256: str | None = None) -> dict[str, Any]:
        arguments = {
            "RUNNER_URL": self.runner_url,
            "RUNNER_SHA256": sha256 or self.runner_sum,
            "CONTAINER_HOOKS": runner_stand_in.CONTAINER_HOOKS,
        }
        return {
            "base": docker_engine.DEBIAN,
            "registry": self.registry,
            "pin": "dev",
            "build_args": [f"{name}={value}" for name, value in arguments.items()],
        }

    def build(self, **flags: Any) -> dict[str, Any]:
        return self._report("images.build", "runner", **flags)

    def push(self, **flags: Any) -> dict[str, Any]:
        return self._report("images.push", **flags)

    def words(self, **flags: Any) -> list[str]:
        """Return the flags of a command line."""
        given = {name: value for name, value in {**self.flags(), **flags}.items() if value}
        words = [word for value in given.pop("build_args", ()) for word in ("--build-arg", value)]
        for name, value in given.items():
            flag = f"--{name.rstrip('_').replace('_', '-')}"
            words += [flag] if value is True else [flag, value]
        return words

    def _report(self, *command: str, **flags: Any) -> dict[str, Any]:
        """Call the command as a process. Raises Refused."""
        env = {"PADDOCK_ROOT": str(self.project)}
        done = self.inv(*command, *self.words(**flags), "--json", env=env, seconds=1200)
        if done.returncode:
            raise Refused(done.returncode, done.stderr)
        document: dict[str, Any] = json.loads(done.stdout)
        if document["built"]:
            name = document["image"].partition("@")[0]
            self.tags.update((name, f"paddock/runner-gpu:{name.rpartition(':')[2]}"))
        return document

    def inside(self, image: str, script: str, **environment: str) -> Finished:
        return self.docker.run(image, ["bash", "-c", script], environment=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Site]:
    docker = docker_engine.engine()
    docker_engine.debian_base()
    folder = tmp_path_factory.mktemp("runner-image")
    project = checkout.copy(root, folder / "project")
    (folder / "door").mkdir()
    inv = Door(root, folder / "door")
    (folder / "served").mkdir()
    (folder / "registry").mkdir()
    archive = runner_stand_in.archive(folder / "served" / "runner.tar.gz")
    runner_stand_in.container_hooks(docker)
    with runner_stand_in.served(archive.parent, docker) as url, docker_engine.registry(folder / "registry") as registry:
        sum_ = hashlib.sha256(archive.read_bytes()).hexdigest()
        site = Site(docker, inv, project, registry, f"{url}/{archive.name}", archive.parent, sum_)
        yield site
        for tag in site.tags:
            docker.remove(tag)


@pytest.fixture(scope="module")
def first(site: Site) -> dict[str, Any]:
    """Return the report of the first build, on which all later tests depend."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PULUMI_CONFIG_PASSPHRASE"):
            environment.setenv(name, SECRET)
        return site.build()


@pytest.fixture(scope="module")
def image(site: Site, first: dict[str, Any]) -> str:
    """The image's name in the registry, which the engine has too."""
    return str(first["image"]).partition("@")[0]


def test_the_pin_is_the_digest_in_the_registry(site: Site, first: dict[str, Any]) -> None:
    reference = str(first["image"])
    assert reference.startswith(f"{site.registry}/runner-gpu:nocuda-runner{ACTIONS_RUNNER}-{first['content'][:12]}@")
    assert load(site.project, "dev").fleet.images.runner == reference
    digest = reference.partition("@")[2]
    request = urllib.request.Request(
        f"http://{site.registry}/v2/runner-gpu/manifests/{digest}",
        headers={"Accept": "application/vnd.docker.distribution.manifest.v2+json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert hashlib.sha256(answer.read()).hexdigest() == digest.removeprefix("sha256:")
    assert "# the key: pulumi config set" in site.stack.read_text()
    assert first["built"]["steps"] > 10
    assert (first["pushed"], first["cuda_programs"]) == (True, None)
    assert sum(layer["size_bytes"] for layer in first["layers"]) > 300_000_000


def test_the_user_is_the_one_of_githubs_image(site: Site, image: str) -> None:
    output = site.inside(image, "id -u; id -un; id -G; stat -c %u:%g /home/runner/run.sh; sudo -n id -u")
    assert output.stdout.split("\n") == ["1001", "runner", "1001 123", "1001:123", "0", ""], output.stderr
    local = site.docker.image(image)
    assert local is not None
    assert local.user == "1001"


def test_runner_hooks_and_tools_are_there(site: Site, image: str) -> None:
    tools = "cmake ninja ccache git git-lfs gcc g++ gpg make curl jq lsb_release zstd unzip docker python3"
    script = f"""
        set -e
        /home/runner/bin/Runner.Listener --version
        paddock --version
        cat /home/runner/k8s/index.js /home/runner/k8s-novolume/index.js
        for each in {tools}; do command -v $each > /dev/null || echo no $each; done
        python3 -c 'import ensurepip, numpy, pip, typing_extensions, venv, yaml'
        ccache --get-config cache_dir; ccache --get-config max_size; test -w /home/runner/.cache/ccache
        ls /opt/paddock/hooks
        """
    output = site.inside(image, script)
    assert output.code == 0, output.stderr
    assert output.stdout.split("\n") == [
        *(ACTIONS_RUNNER, f"paddock {__version__}", "with a volume", "without a volume"),
        *("/home/runner/.cache/ccache", "10.0G", "job-completed.sh", "job-started.sh", ""),
    ]


def test_packages_take_their_fixes_from_every_source_and_cuda_stays(site: Site, image: str) -> None:
    scripts: dict[str | Path, str] = {site.project / "images" / "runner-gpu": "/scripts:ro"}
    output = site.docker.run(
        image, ["bash", "-c", PACKAGES_AGAIN.read_text(encoding="utf-8")], user="0", volumes=scripts
    )
    assert output.code == 0, output.stderr
    assert output.stdout.splitlines()[-5:] == [
        *("cuda-like 1.0", "openssl-like 2.0"),
        *("/home/runner 755 runner:runner", "/home/runner/.env 644 runner:docker", "ImageOS=ubuntu24"),
    ]


def test_a_pod_without_a_request_sees_no_gpu(site: Site, image: str) -> None:
    local = site.docker.image(image)
    assert local is not None
    assert local.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert local.environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert local.environment["RUNNER_MANUALLY_TRAP_SIG"] == "1"


def test_the_hook_before_a_job_fires(site: Site, image: str) -> None:
    hook = 'cd && exec "$ACTIONS_RUNNER_HOOK_JOB_STARTED"'
    without = site.inside(image, hook, PADDOCK_GPUS="0")
    assert (without.code, without.stdout) == (0, "")
    missing = site.inside(image, hook, PADDOCK_GPUS="1")
    assert missing.code == 1
    assert "::error title=" in missing.stdout + missing.stderr


def test_the_hook_after_a_job_fires_and_fails_none(site: Site, image: str) -> None:
    hook = 'cd && echo x > /dev/shm/left && exec "$ACTIONS_RUNNER_HOOK_JOB_COMPLETED"'
    without = site.inside(image, hook, PADDOCK_GPUS="0")
    assert (without.code, without.stdout) == (0, "")
    missing = site.inside(image, hook, PADDOCK_GPUS="1")
    assert (missing.code, missing.stdout) == (0, "Wiped /dev/shm: 1 files, 0 MiB\n"), missing.stderr


def test_no_secret_and_no_cache_is_in_the_image(site: Site, image: str) -> None:
    search = f"grep -rIl {SECRET} /etc /home /opt /root /tmp /usr/local /var 2> /dev/null"
    assert site.docker.run(image, ["bash", "-c", search], user="0").stdout == ""
    local = site.docker.image(image)
    assert local is not None
    texts = [
        *local.environment.values(),
        *local.labels.values(),
        *(layer.created_by for layer in site.docker.layers(image)),
    ]
    assert SECRET not in "\n".join(texts)
    lists = "ls /var/lib/apt/lists /var/cache/apt/archives /tmp /mnt"
    assert site.inside(image, lists).stdout == site.inside(docker_engine.DEBIAN, lists).stdout


def test_labels_say_what_it_is(site: Site, first: dict[str, Any], image: str) -> None:
    local = site.docker.image(image)
    assert local is not None
    assert local.labels["dev.paddock.runner"] == ACTIONS_RUNNER
    assert local.labels["dev.paddock.content"] == first["content"]
    assert local.labels["dev.paddock.cuda"] == ""
    assert local.labels["org.opencontainers.image.base.name"] == docker_engine.DEBIAN
    assert local.labels["org.opencontainers.image.created"] > "2026"
    assert local.labels["dev.paddock.packages"] > "2026"
    assert f"linux/{local.architecture}" == first["platform"]


@pytest.mark.door("images.build", "the real Docker engine and registry")
def test_a_second_run_builds_nothing_and_pushes_nothing(site: Site, first: dict[str, Any]) -> None:
    before = site.stack.read_bytes()
    second = site.build()
    assert second["image"] == first["image"]
    assert (second["built"], second["pushed"]) == (None, False)
    assert site.stack.read_bytes() == before


def test_another_machine_takes_what_the_registry_has(site: Site, first: dict[str, Any], image: str) -> None:
    local = f"paddock/runner-gpu:{image.rpartition(':')[2]}"
    site.docker.remove(local)
    try:
        second = site.build()
    finally:
        site.docker.tag(image, local)
    assert second["image"] == first["image"]
    assert (second["built"], second["pushed"], second["layers"]) == (None, False, [])


def test_a_changed_hook_is_rebuilt_as_one_small_step(site: Site, first: dict[str, Any]) -> None:
    hook = site.project / "runners" / "hooks" / "job-started.sh"
    before = hook.read_bytes()
    hook.write_bytes(before + b"# another line\n")
    try:
        with pytest.raises(Refused, match=r"was not built on this machine .*\n.*\n    fix: ./inv images.build"):
            site.push()
        changed = site.build(pin=None, registry=None)  # it stays on this machine
    finally:
        hook.write_bytes(before)
    assert changed["image"] != first["image"]
    assert changed["built"]["steps"] - changed["built"]["cached"] <= 2  # the hooks, and the folder after them


def test_a_wrong_checksum_is_reported_and_nothing_is_pinned(site: Site, first: dict[str, Any]) -> None:
    before = site.stack.read_bytes()
    with pytest.raises(Refused, match=f"wrong checksum of {site.runner_url}: expected sha256 {'0' * 64}, found") as e:
        site.build(**site.flags(sha256="0" * 64))
    assert e.value.code == 1
    assert site.stack.read_bytes() == before


def test_a_tag_that_the_registry_has_is_not_made_anew(site: Site, first: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"a tag always has the same content\n.*\n    fix: .*PACKAGES_AS_OF="):
        site.build(no_cache=True)


def test_without_credentials_for_the_fleets_registry_nothing_is_built(site: Site, first: dict[str, Any]) -> None:
    before, images = site.stack.read_bytes(), _runner_images(site.docker, site.registry)
    with pytest.raises(Refused, match="no credentials for AWS"):
        site.build(registry=None)
    assert site.stack.read_bytes() == before
    assert _runner_images(site.docker, site.registry) <= images


def test_pytorch_of_a_lock_is_in_the_python_of_jobs(site: Site, tmp_path: Path) -> None:
    """A wheel that is made up takes PyTorch's place, and a folder that is served the package index's."""
    served = site.runner_url.rpartition("/")[0]
    folder = Path(site.runner_folder, "simple", "torch")
    folder.mkdir(parents=True)
    wheel = folder / "torch-2.99.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("torch/__init__.py", '__version__ = "2.99.0"\n')
        packed.writestr("torch-2.99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        packed.writestr("torch-2.99.0.dist-info/WHEEL", tag)
        packed.writestr("torch-2.99.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    lock = site.project / "locks" / "torch.txt"
    before = lock.read_bytes() if lock.exists() else None
    lock.write_text(f"torch==2.99.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    index = [*site.flags()["build_args"], f"PIP_INDEX_URL={served}/simple"]
    try:
        image = str(site.build(with_="torch", build_args=index, pin=None, registry=None)["image"])
    finally:
        lock.unlink() if before is None else lock.write_bytes(before)
    assert f":nocuda-torch2.99.0-runner{ACTIONS_RUNNER}-" in image
    output = site.inside(image, "python3 -c 'import torch; print(torch.__file__)'; paddock --version")
    assert output.stdout.startswith("/usr/local/lib/python3"), output.stderr


@pytest.mark.door("images.build", "the real Docker engine", interrupted=True)
def test_an_interrupted_build_leaves_stack_and_images_as_they_were(site: Site, first: dict[str, Any]) -> None:
    before, images = site.stack.read_bytes(), _runner_images(site.docker, site.registry)
    # Its own content, so that there is something to build; the step of the wheels takes seconds.
    build_args = [*site.flags()["build_args"], "PACKAGES_AS_OF=2001-01-01"]
    words = site.words(build_args=build_args, progress="plain")
    build = site.inv.start("build-runner", *words, env={"PADDOCK_ROOT": str(site.project)})
    assert build.stderr is not None
    for line in build.stderr:
        if "RUN --mount" in line:
            break
    code, _, errors = site.inv.interrupt(build)
    assert (code, "Traceback" in errors) == (130, False), errors
    assert "the same command continues from there" in errors
    assert site.stack.read_bytes() == before
    assert _runner_images(site.docker, site.registry) <= images  # another run may have removed its own


def test_an_image_that_is_no_runner_is_found_out(site: Site) -> None:
    with pytest.raises(
        BuildError, match=r"is not a runner\n    user: expected 1001, found 0\n    runner: expected 2\.\d+"
    ) as e:
        runner.verify(site.docker, docker_engine.DEBIAN, Base(docker_engine.DEBIAN, "sha256:1d", None))
    assert "hook before a job" in str(e.value)


def _runner_images(docker: Docker, registry: str) -> set[str]:
    """Names of the runner images on the base of these tests."""
    form = "{{.Repository}}:{{.Tag}}"
    result = subprocess.run(
        [docker.client.path, "image", "ls", "--format", form, "--filter", "label=dev.paddock.content",
         "--filter", f"label=org.opencontainers.image.base.name={docker_engine.DEBIAN}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line for line in result.stdout.split() if line.startswith(("paddock/runner-gpu:nocuda-", f"{registry}/"))}
