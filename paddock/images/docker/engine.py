"""The engine as the rest of `paddock.images` uses it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paddock.image_reference import Reference
from paddock.images.docker import api, credentials, find, problems, process, space
from paddock.images.docker.building import build
from paddock.images.docker.model import Built, Finished, Layer, Local
from paddock.images.docker.show import Progress
from paddock.images.errors import BuildError, BuildInputError

RUN_S = 600.0
"""Seconds that a container may take."""
ROOM = 2_000_000_000
"""Bytes that a build is taken to need at least."""
_CLIENTS_OWN = re.compile(r"(?:PATH|HOME|DOCKER_.*)$")
_NOT_STARTED = 125
"""Exit code of `docker run` when no container was started."""
_STDERR = 2


class Docker:
    """One client and its engine."""

    def __init__(self, client: find.Client, environ: Mapping[str, str]) -> None:
        self.client = client
        # Docker Desktop's advice on what to do next would stand below what went wrong.
        self.environ = {**environ, "DOCKER_CLI_HINTS": "false"}

    @classmethod
    def find(cls, environ: Mapping[str, str], seconds: float = find.ANSWERS_S) -> Docker:
        """The first docker on PATH with BuildKit. Raises BuildError, saying what to install or start.

        `seconds`: the time that each question to it may take.
        """
        return cls(find.find(environ, seconds), environ)

    def build(
        self,
        context: Path,
        *,
        tags: Sequence[str],
        args: Mapping[str, str],
        labels: Mapping[str, str],
        platform: str | None = None,
        no_cache: bool = False,
        cache_from: Sequence[str] = (),
        progress: Progress = "auto",
        room_bytes: int = ROOM,
        known_as: str | None = None,
    ) -> Built:
        """Builds `context/Dockerfile` into the engine's store under `tags`, with its cache inside of the image.

        A tag is the only name that every store knows it by: buildx before 0.36 tells an id that containerd's store
        does not have (docker/buildx#3952, fixed 2026-07-29). Messages name `context` as the user does: `known_as`.
        `room_bytes` must be free on the engine's disk, where it can be seen. Raises BuildError, naming what failed.
        """
        for tag in tags:
            Reference.parse(tag)
        known_as = known_as or str(context)
        space.check(self.info(), room_bytes, f"cannot build {known_as}")
        options = [word for tag in tags for word in ("--tag", tag)]
        options += [word for name, value in args.items() for word in ("--build-arg", f"{name}={value}")]
        options += [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
        options += [word for image in cache_from for word in ("--cache-from", image)]
        options += ["--platform", platform] if platform else []
        options += ["--no-cache"] if no_cache else []
        command = [*self._command(), *self._builder(), *options, *self._network()]
        return build(command, self.environ, context, known_as, progress)

    def push(self, reference: str, *, progress: Progress = "auto") -> str:
        """The digest, `sha256:…`, under which the registry holds the image.

        A tag that the registry has with other content stays as it is: BuildInputError.
        """
        to = Reference.parse(reference)
        if not to.tag:
            raise BuildInputError(
                f"cannot push {reference}\n    expected: a tag, which its digest then follows from"
                f"\n    fix: {to.name}:TAG"
            )
        local = self.image(reference)
        if local is None:
            raise problems.engine("No such image", f"cannot push {to.written}")
        there = self.remote_digest(reference)
        if there and f"{to.name}@{there}" not in local.digests:
            raise BuildInputError(
                f"cannot push {to.written}: {to.registry} has this tag with another content, {there}"
                "\n    expected: a tag that is not there yet, since tags are never moved"
                f"\n    fix: use that image (docker pull {to.written}), or remove its tag from the registry first"
            )
        self._transfer("push", to, progress)
        digest, local = self.remote_digest(reference), self.image(reference)
        if digest is None or local is None or f"{to.name}@{digest}" not in local.digests:
            raise BuildError(f"{to.written} was pushed, and {to.registry} has another content under it: {digest}")
        return digest

    def pull(self, reference: str, *, platform: str = "", progress: Progress = "auto") -> None:
        """Into the engine's store, for a platform like linux/amd64, by default the engine's own."""
        self._transfer("pull", Reference.parse(reference), progress, *(["--platform", platform] if platform else []))

    def remote_digest(self, reference: str) -> str | None:
        """Return the registry's digest of the reference; None where it has none. Raises BuildError if it cannot say."""
        of = Reference.parse(reference)
        header = credentials.header(self.environ, of.registry)
        answer = api.get(self._command(), self.environ, f"/distribution/{of.written}/json", header)
        if answer.status == 200:
            return str(answer.body["Descriptor"]["digest"])
        if answer.status == 404:
            return None
        raise problems.registry(str(answer.body.get("message")), f"cannot look up {of.written}", of.registry)

    def login(self, registry: str, user: str, password: str) -> None:
        """Log in for this object alone: nothing is written to the user's own settings."""
        # A registry's token lives for hours; in ~/.docker it would stay, and shadow the user's own login, for ever.
        folder = credentials.private(self.environ, registry)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        environ = {**self.environ, "DOCKER_CONFIG": str(folder)}
        finished = self._call(
            "login", "--username", user, "--password-stdin", registry, stdin=password, environ=environ
        )
        if finished.code:
            raise problems.registry(finished.stderr.replace(password, "…"), f"cannot log in to {registry}", registry)
        self.environ = environ

    def image(self, reference: str) -> Local | None:
        """The image in the engine's store; None where it is not there."""
        finished = self._call("image", "inspect", reference)
        if finished.code:
            if "no such image" in finished.stderr.lower():
                return None
            raise problems.engine(finished.stderr, f"cannot look at {reference}")
        (description,) = json.loads(finished.stdout)
        config: dict[str, Any] = description.get("Config") or {}
        return Local(
            id=description["Id"],
            size_bytes=int(description["Size"]),
            labels=config.get("Labels") or {},
            created=description["Created"],
            digests=tuple(description.get("RepoDigests") or ()),
            user=config.get("User") or "",
            environment=dict(variable.split("=", 1) for variable in config.get("Env") or ()),
            architecture=description.get("Architecture") or "",
        )

    def info(self) -> dict[str, Any]:
        """Return what the engine says of itself and its machine."""
        return dict(json.loads(self._output("cannot ask docker", "info", "--format", "{{json .}}")))

    def images(self, label: str) -> tuple[str, ...]:
        """Tags of the images that bear this label, the newest image first."""
        form = "{{.Repository}}:{{.Tag}}"
        output = self._output("cannot list images", "image", "ls", "--filter", f"label={label}", "--format", form)
        return tuple(line for line in output.splitlines() if "<none>" not in line)

    def layers(self, reference: str) -> tuple[Layer, ...]:
        """From the top one down to the base."""
        output = self._output(f"cannot look at {reference}", "history", "--no-trunc", "--human=false",
                          "--format", "{{json .}}", reference)  # fmt: skip
        rows = [json.loads(line) for line in output.splitlines()]
        return tuple(Layer(int(row["Size"]), row["CreatedBy"]) for row in rows)

    def run(
        self,
        image: str,
        command: Sequence[str] = (),
        *,
        volumes: Mapping[str | Path, str] | None = None,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        entrypoint: str | None = None,
        options: Sequence[str] = (),
        timeout_s: float = RUN_S,
        check: bool = True,
    ) -> Finished:
        """Runs a container to its end and removes it. `volumes`: folder of the host to `path[:ro]` inside.

        `options` are further ones of `docker run`, such as `--gpus all`. Raises BuildError where no container could be
        started, or without `check` returns docker's words as its standard error.
        """
        container = f"paddock-{uuid.uuid4().hex[:12]}"
        options = [*options, "--rm", "--pull", "never", "--name", container, *self._network()]
        options += [word for source, to in (volumes or {}).items() for word in ("--volume", f"{source}:{to}")]
        options += ["--user", user] if user else []
        options += ["--entrypoint", entrypoint] if entrypoint is not None else []
        # By name, so that no value appears in the list of processes; but not what the client itself would heed.
        hidden = {name: value for name, value in (environment or {}).items() if not _CLIENTS_OWN.match(name)}
        for name, value in (environment or {}).items():
            options += ["--env", name if name in hidden else f"{name}={value}"]
        environ = {**self.environ, **hidden}
        words = [*self._command(), "run", *options, image, *command]
        try:
            # A program that minds no signal would keep the client waiting; without its container nothing does.
            finished = process.call(
                words, environ, timeout_s=timeout_s, stop=lambda: self._call("rm", "--force", container)
            )
        except process.TimedOut:
            raise BuildError(f"{image} did not end within {timeout_s:g} s and was ended") from None
        if check and finished.code == _NOT_STARTED:
            raise problems.engine(finished.stderr, f"cannot run {image}")
        return finished

    def container(self, name: str) -> dict[str, Any] | None:
        """Return what the engine says of a container, running or not; None where it has none of that name."""
        finished = self._call("container", "inspect", name)
        if finished.code:
            if "no such container" in finished.stderr.lower():
                return None
            raise problems.engine(finished.stderr, f"cannot look at the container {name}")
        (description,) = json.loads(finished.stdout)
        return dict(description)

    def execute(self, container: str, command: Sequence[str], *, timeout_s: float = 60) -> Finished:
        """Runs a program in a running container to its end."""
        return self._call("exec", container, *command, timeout_s=timeout_s)

    def last_lines(self, container: str) -> list[str]:
        """Return the last three lines that a container has printed."""
        finished = self._call("logs", "--tail", "3", container)
        return [line for line in (finished.stdout + finished.stderr).splitlines() if line.strip()]

    def tag(self, reference: str, other: str) -> None:
        self._output(f"cannot tag {reference}", "tag", reference, Reference.parse(other).written)

    def remove(self, reference: str) -> None:
        """A tag, and the image with its last tag. Nothing happens where it is not there."""
        finished = self._call("image", "rm", "--force", reference)
        if finished.code and "no such image" not in finished.stderr.lower():
            raise problems.engine(finished.stderr, f"cannot remove {reference}")

    def _transfer(self, verb: Literal["push", "pull"], image: Reference, progress: Progress, *options: str) -> None:
        """Run the command with docker's own progress on stderr, so that what a task prints stays its own."""
        stdout = subprocess.DEVNULL if progress == "quiet" else _STDERR
        words = [*self._command(), verb, *options, image.written]
        finished = process.call(words, self.environ, stdout=stdout, timeout_s=None)
        if finished.code:
            raise problems.registry(finished.stderr, f"cannot {verb} {image.written}", image.registry)

    def _builder(self) -> list[str]:
        if not self.client.buildx:
            return ["build", "--build-arg", "BUILDKIT_INLINE_CACHE=1"]
        # The engine's own builder bears its context's name; another keeps images where the engine cannot see them.
        context = self._output("cannot ask docker", "context", "inspect", "--format", "{{.Name}}").strip()
        return ["buildx", "build", "--builder", context, "--load", "--cache-to", "type=inline"]

    def _network(self) -> list[str]:
        """The host's where the engine has no bridge."""
        named = self._output("cannot ask docker", "network", "ls", "--filter", "driver=bridge", "--format", "{{.Name}}")
        return [] if "bridge" in named.split() else ["--network", "host"]

    def _output(self, action: str, *words: str) -> str:
        finished = self._call(*words)
        if finished.code:
            raise problems.engine(finished.stderr, action)
        return finished.stdout

    def _call(
        self, *words: str, stdin: str | None = None, environ: Mapping[str, str] | None = None, timeout_s: float = 120
    ) -> Finished:
        return process.call([*self._command(), *words], environ or self.environ, stdin=stdin, timeout_s=timeout_s)

    def _command(self) -> list[str]:
        return [self.client.path]
