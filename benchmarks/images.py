#!/usr/bin/env python3
"""The runner image built cold, with one hook changed, and unchanged; its layers by size.

    .venv/bin/python benchmarks/images.py [--runs N] [--base IMAGE]

Prints one JSON document. Each build is a whole `inv images.build runner`, from the start of the program to its end,
without a push. Cold takes nothing from earlier builds but the packages that were downloaded. Needs a Docker engine;
without --base, debootstrap makes a small Debian to build on. A stand-in of some kB takes the place of GitHub's runner.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from side_by_side import ROOT, paired, report

sys.path.insert(0, str(ROOT))

import pytest

from paddock.images.docker import Docker
from tests.support import checkout, docker_engine, runner_stand_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="counted runs of each, after one that is not")
    parser.add_argument("--base", help="the image to build on")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            docker = docker_engine.engine()
            base = options.base or docker_engine.debian_base()
            runner_stand_in.container_hooks(docker)
            (folder / "served").mkdir()
            archive = runner_stand_in.archive(folder / "served" / "runner.tar.gz")
            url = stack.enter_context(runner_stand_in.served(archive.parent, docker))
        except pytest.skip.Exception as reason:
            sys.exit(str(reason))
        project = checkout.copy(ROOT, folder / "project")
        images: set[str] = set()
        stack.callback(remove, docker, images)
        arguments = {
            "RUNNER_URL": f"{url}/{archive.name}",
            "RUNNER_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "CONTAINER_HOOKS": runner_stand_in.CONTAINER_HOOKS,
        }
        words = ["--base", base, *(f"--build-arg={name}={value}" for name, value in arguments.items())]
        report(measured(project, words, options.runs, docker, images))


def measured(project: Path, words: list[str], runs: int, docker: Docker, images: set[str]) -> list[dict[str, object]]:
    """`images` holds the names of the images that are there."""
    hook = project / "runners" / "hooks" / "job-completed.sh"
    text, changes = hook.read_text(encoding="utf-8"), iter(range(1_000_000))

    def unchanged(*more: str) -> float:
        start = time.perf_counter()
        images.add(build(project, *words, *more)["image"])
        return time.perf_counter() - start

    def cold() -> float:
        remove(docker, images)  # the name would move to the new image, and the old one stay without any
        return unchanged("--no-cache")

    def warm() -> float:
        hook.write_text(f"{text}# {next(changes)}\n", encoding="utf-8")
        return unchanged()

    unchanged()
    result = build(project, *words)
    layers: dict[str, object] = {
        "name": "layers of the image, unpacked bytes",
        "total": result["size_bytes"],
        "layers": sorted(result["layers"], key=lambda layer: -layer["size_bytes"]),
    }
    return [
        paired("one hook changed / cold", 0.2, runs, warm, cold),
        paired("unchanged / cold", 0.1, runs, unchanged, cold),
        layers,
    ]


def remove(docker: Docker, images: set[str]) -> None:
    while images:
        docker.remove(images.pop())


def build(project: Path, *words: str) -> dict[str, Any]:
    env = {**os.environ, "PADDOCK_ROOT": str(project)}
    command = [sys.executable, "-m", "paddock", "images.build", "runner", *words, "--json"]
    process = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


if __name__ == "__main__":
    main()
