"""A stand-in for pulumi-resource-aws: every resource type of the SDK, no account, no network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from paddock.lab.providers import names, server, shapes
from paddock.lab.providers.aws_command import KUBECONFIG
from paddock.lab.providers.diff import Change
from paddock.lab.providers.wire import unwrap_secrets
from paddock.plan.diff import replacement
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.resource_types import CLUSTER, LAUNCH_TEMPLATE
from paddock.plan.engine.values import UNKNOWN

_PROPERTY = yaml.safe_load(Path(__file__).with_name("identities.yaml").read_text(encoding="utf-8"))


class Aws(server.Provider):
    package = "aws"
    version = version("pulumi-aws")

    def check_inputs(self, type_: str, request: Any, inputs: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
        shape = shapes.shape(type_)
        if shape is None:
            raise server.RefusedError(f"{type_} is not a resource of pulumi-aws {self.version}")
        unknown = sorted(key for key in inputs if key not in shape.inputs and not key.startswith("__"))
        if unknown:
            raise server.RefusedError(f"{type_} has no input {', '.join(unknown)}")
        seed = request.randomSeed or hashlib.sha256(request.urn.encode()).digest()
        return names.named(inputs, shape.name, request.urn.rpartition("::")[2], seed, old)

    def identity(self, type_: str, urn: str, inputs: Mapping[str, Any], state: Mapping[str, Any], serial: int) -> str:
        if known_by := _PROPERTY.get(type_):
            return ":".join(str(unwrap_secrets(inputs[name])) for name in known_by)
        return fake_cloud.resource_id(type_, f"{urn.rpartition('::')[2]}-{names.digits(urn, serial)}")

    def created(self, type_: str, id_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        shape = shapes.shape(type_)
        assert shape is not None  # noqa: S101 - Check has refused it
        physical = str(unwrap_secrets(inputs.get(shape.name or "", id_)))
        computed = fake_cloud.outputs(type_, physical, unwrap_secrets(inputs), fake_cloud.ACCOUNT)
        computed.pop("kubeconfig", None)  # the eks component's, which hands it on
        state = {**computed, **inputs}
        if type_ == LAUNCH_TEMPLATE:
            state |= {"defaultVersion": 1}
        if type_ == CLUSTER:
            state |= self._control_plane(physical, inputs)
        return state | shapes.filled(shape, id_, state)

    def updated(
        self, type_: str, inputs: server.State, computed: server.State, changes: list[Change], *, preview: bool
    ) -> dict[str, Any]:
        after = {**computed, **inputs}
        if type_ == LAUNCH_TEMPLATE and any(replacement.makes_version(c.path[0]) for c in changes):
            after["latestVersion"] = UNKNOWN if preview else int(computed["latestVersion"]) + 1
        if type_ == CLUSTER:
            after |= self._control_plane(str(unwrap_secrets(inputs["name"])), inputs)
        return after

    def may_delete(self, type_: str, state: Mapping[str, Any]) -> None:
        if type_ == CLUSTER and state.get("deletionProtection"):
            raise server.RefusedError(
                f"InvalidRequestException: cluster {state['name']} has deletion protection enabled"
                "\n    fix: cluster: {deletionProtection: false} in the fleet, `pulumi up`, then destroy"
            )

    def answer(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        result = fake_cloud.lookup(token, arguments, fake_cloud.ACCOUNT)
        if result is not None and token.endswith(":getCluster") and (reached := self._reached()):
            authority = [{"data": reached["authority"]}]
            return {**result, "endpoint": reached["endpoint"], "certificateAuthorities": authority}
        return result

    def _control_plane(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of an EKS cluster, or those of the lab's own cluster in its place."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        group = {"clusterSecurityGroupId": f"sg-{digest[:17]}", "vpcId": f"vpc-{digest[:17]}"}
        issuer = f"https://oidc.eks.us-west-2.amazonaws.com/id/{digest[:32].upper()}"
        attributes: dict[str, Any] = {
            "vpcConfig": {**group, **inputs.get("vpcConfig", {})},
            "identities": [{"oidcs": [{"issuer": issuer}]}],
            "status": "ACTIVE",
        }
        if reached := self._reached():
            attributes |= {"endpoint": reached["endpoint"], "certificateAuthority": {"data": reached["authority"]}}
        return attributes

    def _reached(self) -> dict[str, str]:
        path = self.environment.get(KUBECONFIG)
        if not path:
            return {}
        cluster = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        authority = cluster.get("certificate-authority-data")
        if not authority and cluster.get("certificate-authority"):
            authority = base64.b64encode(Path(cluster["certificate-authority"]).read_bytes()).decode()
        return {"endpoint": cluster["server"], "authority": authority or ""}


if __name__ == "__main__":
    server.serve(Aws(os.environ))
