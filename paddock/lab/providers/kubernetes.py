"""A stand-in for pulumi-resource-kubernetes, for a stack that is applied with no cluster behind it.

It keeps what it is given. Where there is a cluster the real provider takes its place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pulumi.runtime.proto import provider_pb2

from paddock.lab.providers import names, server
from paddock.lab.providers.diff import DEFAULTS, Change
from paddock.lab.providers.wire import encode_struct, unwrap_secrets
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.resource_types import RELEASE


class Kubernetes(server.Provider):
    package = "kubernetes"
    version = version("pulumi-kubernetes")

    def check_inputs(self, type_: str, request: Any, inputs: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
        seed = request.randomSeed or hashlib.sha256(request.urn.encode()).digest()
        logical = request.urn.rpartition("::")[2]
        if type_ == RELEASE:
            return names.named(inputs, "name", logical, seed, old)
        metadata = names.named(inputs.get("metadata") or {}, "name", logical, seed, old.get("metadata") or {})
        if not metadata.pop(DEFAULTS):
            return inputs
        return {**inputs, "metadata": metadata}

    def identity(self, type_: str, urn: str, inputs: Mapping[str, Any], state: Mapping[str, Any], serial: int) -> str:
        where = unwrap_secrets(inputs if type_ == RELEASE else inputs["metadata"])
        return f"{where['namespace']}/{where['name']}" if where.get("namespace") else str(where["name"])

    def upserts(self, type_: str) -> bool:
        return type_.endswith("Patch")

    def created(self, type_: str, id_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**inputs, **(_status(inputs, 1) if type_ == RELEASE else {})}

    def updated(
        self, type_: str, inputs: server.State, computed: server.State, changes: list[Change], *, preview: bool
    ) -> dict[str, Any]:
        if type_ != RELEASE:
            return dict(inputs)
        return {**inputs, **_status(inputs, int(computed.get("status", {}).get("revision", 0)) + 1)}

    def answer(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return fake_cloud.lookup(token, arguments, fake_cloud.ACCOUNT)

    def Read(self, request: Any, context: Any) -> Any:
        there = fake_cloud.read(request.type, request.id, preview=False)
        if not there:
            return super().Read(request, context)
        return provider_pb2.ReadResponse(id=request.id, properties=encode_struct(there), inputs=encode_struct({}))


def _status(inputs: Mapping[str, Any], revision: int) -> dict[str, Any]:
    status = {"name": inputs.get("name"), "namespace": inputs.get("namespace"), "status": "deployed"}
    return {"status": {**status, "revision": revision, "version": inputs.get("version", "")}}


if __name__ == "__main__":
    server.serve(Kubernetes(os.environ))
