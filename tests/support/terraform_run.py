"""The real Terraform with the real AWS provider, against moto's stand-in for AWS on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

TERRAFORM = shutil.which("terraform")
PLUGINS = os.environ.get("PADDOCK_TF_PLUGINS")  # these are read before the environment is cleaned
MOTO = os.environ.get("PADDOCK_MOTO_SERVER") or shutil.which("moto_server")
PROVIDER = "registry.terraform.io/hashicorp/aws"
PARALLEL = 30
"""Calls at once: most of the time is the provider's own waiting."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that Terraform or its provider reports."""

    address: str
    message: str


class Terraform:
    """Terraform in a folder of its own, with nothing of the user's configuration, and AWS at `endpoint`."""

    def __init__(self, folder: Path, plugins: Path, endpoint: str) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TF_CLI_CONFIG_FILE": os.devnull,
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": endpoint,
        }
        self.use({"terraform": {"required_providers": {"aws": {"source": "hashicorp/aws"}}}})
        self._run("init", f"-plugin-dir={plugins}", "-input=false")

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """Schemas of the provider, its resources and its data sources."""
        schemas: Mapping[str, Any] = json.loads(self._run("providers", "schema", "-json"))["provider_schemas"][PROVIDER]
        return schemas

    def use(self, document: Mapping[str, Any]) -> None:
        """Set the configuration of the other methods to `document`."""
        self._write(self.folder, document)

    def use_together(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Combine all of them into one configuration, each a module.

        A provider starts for each configuration of it, so those that differ in the fleet's name alone share one.
        """
        first = next(iter(documents))
        shared = documents[first]["provider"]
        for name, document in documents.items():
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            own = json.loads(json.dumps(document["provider"]).replace(f"paddock-{name}", f"paddock-{first}"))
            left = {key: value for key, value in document.items() if key != "provider" or own != shared}
            self._write(folder, left)
        self._write(self.folder, {"provider": shared, "module": {name: {"source": f"./{name}"} for name in documents}})
        self._run("get")

    def _write(self, folder: Path, document: Mapping[str, Any]) -> None:
        (folder / "main.tf.json").write_text(json.dumps(document, indent=1), encoding="utf-8")

    def validate(self) -> list[Problem]:
        document = json.loads(self._run("validate", "-json", refused=True))
        return [_problem(diagnostic) for diagnostic in document["diagnostics"]]

    def plan(self) -> tuple[dict[str, str], list[Problem]]:
        """Return the actions of an `apply`, by address, and the problems."""
        events = self._watch("plan", "-out=plan.bin", f"-parallelism={PARALLEL}")
        changes = [event["change"] for event in events if event["type"] == "planned_change"]
        return {change["resource"]["addr"]: change["action"] for change in changes}, _problems(events)

    def differences(self) -> set[tuple[str, str]]:
        """(type, attribute) that the last plan changes, of what it does not make anew, where the value is known."""
        document = json.loads(self._run("show", "-json", "plan.bin"))
        return {(change["type"], key) for change in document["resource_changes"] for key in _changed(change["change"])}

    def apply(self) -> list[Problem]:
        """Create all resources that can be created, and return the problems of the others."""
        return _problems(self._watch("apply", "-auto-approve", f"-parallelism={PARALLEL}"))

    def destroy(self) -> list[Problem]:
        """Destroy what is there, which need not be read again for that, and return the problems."""
        return _problems(self._watch("destroy", "-auto-approve", "-refresh=false", f"-parallelism={PARALLEL}"))

    def managed_addresses(self) -> set[str]:
        """Addresses of the resources in the state, without those that are only looked up."""
        state = json.loads((self.folder / "terraform.tfstate").read_text(encoding="utf-8"))
        return {f"{each['type']}.{each['name']}" for each in state["resources"] if each["mode"] == "managed"}

    def _watch(self, *command: str) -> list[dict[str, Any]]:
        events = self._run(*command, "-json", "-input=false", refused=True)
        return [json.loads(line) for line in events.splitlines()]

    def _run(self, *command: str, refused: bool = False) -> str:
        completed = subprocess.run(
            [str(TERRAFORM), *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if completed.returncode and not (refused and completed.returncode == 1):
            raise AssertionError(f"terraform {command[0]}: {completed.stderr or completed.stdout}")
        return completed.stdout


def _problem(diagnostic: Mapping[str, Any]) -> Problem:
    message = " ".join(f"{diagnostic['summary']} {diagnostic.get('detail', '')}".split())
    return Problem(diagnostic.get("address", ""), message)


def _problems(events: list[dict[str, Any]]) -> list[Problem]:
    diagnostics = [event["diagnostic"] for event in events if event["type"] == "diagnostic"]
    return [_problem(diagnostic) for diagnostic in diagnostics if diagnostic["severity"] == "error"]


def _changed(change: Mapping[str, Any]) -> list[str]:
    before, after, unknown = change["before"], change["after"] or {}, change["after_unknown"] or {}
    if before is None:
        return []
    return [key for key in after if not _same(before.get(key), after[key], unknown.get(key))]


def _same(before: Any, after: Any, unknown: Any) -> bool:
    """Return whether two values are equal where the second is known."""
    match before, after, unknown:
        case [_, _, True]:
            return True
        case [Mapping(), Mapping(), _]:
            parts = unknown if isinstance(unknown, Mapping) else {}
            return all(_same(before.get(key), after.get(key), parts.get(key)) for key in {*before, *after})
        case [list(), list(), _] if len(before) == len(after):
            unknowns = unknown if isinstance(unknown, list) else []
            return all(_same(*triple) for triple in zip_longest(before, after, unknowns))
        case _:
            return bool(before == after)


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    """URL of a moto server on a free port of loopback, which has AWS's own managed policies."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = folder / "moto.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(MOTO), "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
            env={"PATH": os.environ["PATH"], "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"},
        )
    try:
        _wait_for(url, process, log)
        yield url
    finally:
        process.kill()  # it has nothing to save
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=30).close()
        except OSError:
            time.sleep(0.1)
        else:
            assert process.poll() is None, f"another program has taken the port of {url}"
            return
    raise AssertionError(f"the moto server did not start: {re.sub(r'[^ -~]+', ' ', log.read_text())[-500:]}")
