"""One build: the client's command, its progress, and what is said when it fails."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddock.build.docker import problems, process
from paddock.build.docker.find import Client
from paddock.build.docker.model import Built
from paddock.build.docker.show import Progress, Show
from paddock.build.docker.steps import Step, Steps
from paddock.build.errors import BuildError


def build(
    client: Client, environ: Mapping[str, str], context: Path, options: Sequence[str], progress: Progress
) -> Built:
    """Raises BuildError: the step, its command, its exit code and its last lines, or the engine's own trouble."""
    began = time.monotonic()
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder, Show(progress) as show:
        idfile = Path(folder) / "id"
        told: set[int] = set()

        def read(line: str) -> None:
            show.line(line)
            step = steps.read(line)
            if step is not None:
                _show(show, step, told)

        command = [client.path, *_verb(client), "--progress", "plain", "--iidfile", str(idfile), *options, str(context)]
        code = process.follow(command, {**environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}, read)
        if code:
            raise _failure(steps, context)
        image = idfile.read_text(encoding="utf-8").strip()
    layers = steps.layers
    cached = sum(step.state == "cached" for step in layers)
    return Built(image, round(time.monotonic() - began, 2), len(layers), cached)


def _verb(client: Client) -> list[str]:
    if client.buildx:
        return ["buildx", "build", "--load", "--cache-to", "type=inline"]
    return ["build", "--build-arg", "BUILDKIT_INLINE_CACHE=1"]


def _show(show: Show, step: Step, told: set[int]) -> None:
    if step.state == "running":
        show.now(step.name)
    elif id(step) not in told and step.makes_layer:
        told.add(id(step))
        show.ended(step)


def _failure(steps: Steps, context: Path) -> BuildError:
    step = steps.failed
    doing = f"cannot build {context}"
    if step is None or not step.makes_layer:
        said = "\n".join([step.error] if step else steps.outside)
        return problems.base(said, doing) or BuildError(f"{doing}: {said}")
    code = f" with exit code {step.exit_code}" if step.exit_code is not None else ""
    return BuildError(f"{doing}: {step.name} failed{code}\n" + "\n".join(f"    | {line}" for line in step.output))
