"""Steps of a GitHub workflow, run as written: bash with GitHub's options, its files and the variables it says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
_OURS = re.compile(r"(?:\./inv|\binvoke|\bpaddock) [a-z]")


def read(text: str) -> dict[str, Any]:
    """Return a workflow; its words as they are written."""
    workflow: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)
    return workflow


def of_page(page: Path) -> Iterator[dict[str, Any]]:
    """Yield the workflows that a page shows."""
    for block in re.findall(r"^```ya?ml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if re.search(r"^jobs:", block, re.MULTILINE):
            yield read(block)


def calls_us(job: Mapping[str, Any]) -> bool:
    """Return whether a step of the job calls a task."""
    return any(_OURS.search(step.get("run", "")) for step in job.get("steps", []))


@dataclass
class Job:
    """A job of a workflow that runs its steps in a folder. `contexts` are GitHub's: vars, inputs, github, needs."""

    workflow: Mapping[str, Any]
    name: str
    folder: Path
    environ: Mapping[str, str]
    contexts: Mapping[str, Any] = field(default_factory=dict)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outputs of steps by id."""

    def __post_init__(self) -> None:
        self.temp = self.folder.parent / "runner-temp"
        self.temp.mkdir(exist_ok=True)
        self.summary = self.temp / "summary.md"
        self.summary.touch()
        self._job, self._env = self.workflow["jobs"][self.name], dict[str, str]()
        self._env = {name: self._text(text) for name, text in self._job.get("env", {}).items()}

    def run(self) -> dict[str, str]:
        """Run every step whose condition holds, and return the job's outputs. A step that fails fails the test."""
        for step in self._job["steps"]:
            if "run" in step and self._holds(step.get("if", "")):
                self._run(step)
        return {name: self._text(text) for name, text in self._job.get("outputs", {}).items()}

    def _run(self, step: Mapping[str, Any]) -> None:
        output = self.temp / "output"
        output.write_text("")
        own = {**self.workflow.get("env", {}), **self._env, **step.get("env", {})}
        files = {"GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": self.summary, "RUNNER_TEMP": self.temp}
        environ = {
            **self.environ,
            **{name: str(path) for name, path in files.items()},
            **{name: self._text(text) for name, text in own.items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder / step.get("working-directory", "."), env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{step.get('name')}: {done.returncode}\n{done.stdout}{done.stderr}"
        if "id" in step:
            self.steps[step["id"]] = _outputs(output.read_text())

    def _holds(self, condition: str) -> bool:
        expression = _EXPRESSION.sub(r"\1", condition)
        return expression in ("", "always()", "!cancelled()") or bool(self._value(expression))

    def _text(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self._value(match[1]), text)

    def _value(self, expression: str) -> str:
        """Return the value of a path, of a literal, or of the first of alternatives that is not empty."""
        contexts = {"env": self._env, "runner": {"temp": str(self.temp)}, **self.contexts}
        contexts["steps"] = {name: {"outputs": outputs} for name, outputs in self.steps.items()}
        for part in (part.strip() for part in expression.split("||")):
            if part.startswith("'"):
                return part.strip("'")
            value: Any = contexts
            inner = re.sub(r"\[([\w.]+)\]", lambda match: f".{self._value(match[1])}", part)
            for word in inner.split("."):
                value = value.get(word, {}) if isinstance(value, Mapping) else {}
            if value:
                return str(value)
        return ""


def _outputs(text: str) -> dict[str, str]:
    """Return outputs as GitHub reads them: `name=value`, or lines between a delimiter and itself."""
    result, lines = {}, iter(text.splitlines())
    for line in lines:
        name, heredoc, end = line.partition("<<")
        if heredoc and "=" not in name:
            value = []
            for inner in lines:
                if inner == end:
                    break
                value.append(inner)
            result[name] = "\n".join(value)
        else:
            result[line.partition("=")[0]] = line.partition("=")[2]
    return result


def checkout_of(folder: Path, root: Path, python: str) -> None:
    """Make a folder the checkout that a step stands in: its `./inv` is the project's, for the files there."""
    script = folder / "inv"
    script.write_text(
        f'#!/bin/sh\nPADDOCK_ROOT="$(cd "${{0%/*}}" && pwd)" exec "{python}" "{root}/inv" "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "--quiet"], ["add", "--all", "--force"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
