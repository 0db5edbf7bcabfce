"""A page's commands, run one after the other in one shell, in a copy of the project that is thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from paddock.lab.control_plane.certificates import rsa_key
from tests.support import pages
from tests.support.pages import Command, File

ROOT = Path(__file__).resolve().parents[2]
KEY = "Downloads/paddock-acme.2026-11-23.private-key.pem"
"""Download of the App's key, below the home of whoever walks."""
LIMIT = 600.0
"""Seconds for one command."""


class Walk:
    """A home, a project without stacks but the examples, and what the shell of the last command left."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.project, self.home = folder / "paddock", folder / "home"
        self._variables = folder / "variables"
        self.project.mkdir()
        for name in ("infra", "runners", "ami", "images", "policy", "docs", "paddock"):
            (self.project / name).symlink_to(ROOT / name)
        for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml"):
            shutil.copy(ROOT / name, self.project)
        # The bootstrap would make an environment for this copy, which tests/house looks at.
        program(
            self.project / "inv",
            f"PADDOCK_PROGRAM=./inv PADDOCK_CWD=$PWD PYTHONPATH='{ROOT}' exec '{sys.executable}' -P -m paddock",
        )
        key = self.home / KEY
        key.parent.mkdir(parents=True)
        key.write_text(rsa_key())
        self._environment = {
            **{name: os.environ[name] for name in ("PATH", "PADDOCK_TODAY")},
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            **(environment or {}),
        }

    def take(self, step: Command | File) -> None:
        """Run the command and compare its output, or write the file."""
        if isinstance(step, File):
            path = self.project / step.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.content)
            return
        printed = self.run(step.text)
        difference = pages.differences(step.output, printed) if step.output else ""
        assert not difference, f"line {step.line}: {step.text}: {difference}\n{printed[-4000:]}"

    def run(self, command: str) -> str:
        """Run a command in the shell that the last one left, and return all that it printed."""
        script = f"{command}\nstatus=$?\nexport -p > '{self._variables}'\nexit $status\n"
        if self._variables.exists():
            script = f". '{self._variables}'\n{script}"
        completed = subprocess.run(
            ["bash", "-c", script],
            cwd=self.project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        assert completed.returncode == 0, f"{command}\n{completed.stdout[-4000:]}"
        return completed.stdout

    def configure_project(self, **settings: object) -> None:
        """Change the project file, such as to name other plugins."""
        path = self.project / "Pulumi.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}, sort_keys=False))


def program(path: Path, command: str) -> None:
    """Write a program that starts another one with its own arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{command} "$@"\n')
    path.chmod(0o755)
