"""A fleet in operation behind the door: AWS, Kubernetes, GitHub and Pulumi are stand-ins at the process's boundary."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from paddock.fleet import Stack, load
from tests.support import aws_http, kubernetes_api, pulumi_program
from tests.support.aws_account import Account, Answer
from tests.support.chain_world import World
from tests.support.door import Door
from tests.support.engine_stand_in import StandInForPulumi, stack
from tests.support.kubernetes_api import KubernetesApi

VERSIONS = {
    "pulumi": "v3.259.0",
    "aws": "aws-cli/2.31.2 Python/3.13.7 Linux/6.12",
    "kubectl": '{"clientVersion": {"gitVersion": "v1.36.1"}}',
    "docker": "Docker version 28.2.2, build e6534b4",
}


class Operation:
    """A project, its account, cluster and engine, and the door to its tasks."""

    def __init__(self, inv: Door, root: Path, folder: Path, served: ExitStack) -> None:
        self.inv, self.served = inv, served
        self.project = folder / "project"
        self.project.mkdir()
        for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
            (self.project / name).write_text((root / name).read_text().replace("203.0.113.0/24", "198.18.0.0/15"))
        for name, text in VERSIONS.items():
            inv.program(name, f"#!/bin/sh\necho '{text}'\n")
        # The doctor asks a service for this machine's address, which no test does.
        self.env = {"PADDOCK_ROOT": str(self.project), "HTTPS_PROXY": "http://127.0.0.1:9"}
        self.api: KubernetesApi | None = None
        self.flags: list[str] = []

    @property
    def stack(self) -> Stack:
        return load(self.project, "dev")

    def account(self, answers: dict[str, Answer]) -> Account:
        account = Account(answers)
        self.env |= self.served.enter_context(aws_http.serve(account))
        return account

    def cluster(self) -> KubernetesApi:
        """Serve a cluster with one runner at work."""
        self.api = self.served.enter_context(
            kubernetes_api.serve(KubernetesApi(World(self.stack, datetime.now(UTC).replace(microsecond=0))))
        )
        file = self.api.kubeconfig(self.inv.home / "kubeconfig")
        self.flags = ["--kubeconfig", str(file)]
        return self.api

    def github(self, url: str) -> None:
        """Let the stack's GitHub be a server at an address."""
        path = self.project / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text())
        document["config"]["paddock:fleet"]["github"] |= {"url": f"{url}/acme", "serverVersion": "3.21"}
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    def engine(self, version: str) -> StandInForPulumi:
        """Put a Pulumi on PATH whose stack has ARC at a version."""
        engine = StandInForPulumi(stack(version))
        self.inv.program("pulumi", self.served.enter_context(pulumi_program.program(engine)))
        return engine

    @staticmethod
    def without(name: str) -> str:
        """Return PATH without the folders that have a program of that name."""
        folders = os.environ["PATH"].split(os.pathsep)
        return os.pathsep.join(folder for folder in folders if not Path(folder, name).exists())

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Any:
        return self.inv(*words, *self.flags, env={**self.env, **(env or {})})

    def start(self, *words: str) -> Any:
        return self.inv.start(*words, *self.flags, env=self.env)
