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

ACCOUNT = "PADDOCK_LAB_ACCOUNT"
_PROPERTY = {  # what AWS knows a resource by, where it is not an id that AWS makes up
    "aws:cloudwatch/dashboard:Dashboard": ("dashboardName",),
    "aws:cloudwatch/logGroup:LogGroup": ("name",),
    "aws:cloudwatch/metricAlarm:MetricAlarm": ("name",),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": ("repository",),
    "aws:ecr/repository:Repository": ("name",),
    "aws:eks/accessEntry:AccessEntry": ("clusterName", "principalArn"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ("clusterName", "principalArn", "policyArn"),
    "aws:eks/addon:Addon": ("clusterName", "addonName"),
    "aws:eks/cluster:Cluster": ("name",),
    "aws:eks/nodeGroup:NodeGroup": ("clusterName", "nodeGroupName"),
    "aws:iam/instanceProfile:InstanceProfile": ("name",),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": ("url",),
    "aws:iam/role:Role": ("name",),
    "aws:iam/rolePolicy:RolePolicy": ("role", "name"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("role", "policyArn"),
}


class Aws(server.Provider):
    package = "aws"
    version = version("pulumi-aws")

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.account = environment.get(ACCOUNT) or fake_cloud.ACCOUNT

    def check_inputs(self, type_: str, request: Any, inputs: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
        shape = shapes.shape(type_)
        if shape is None:
            raise server.RefusedError(f"{type_} is no resource of pulumi-aws {self.version}")
        unknown = sorted(key for key in inputs if key not in shape.inputs and not key.startswith("__"))
        if unknown:
            raise server.RefusedError(f"{type_} has no input {', '.join(unknown)}")
        seed = request.randomSeed or hashlib.sha256(request.urn.encode()).digest()
        return names.named(inputs, shape.name, request.urn.rpartition("::")[2], seed, old)

    def identity(self, type_: str, urn: str, inputs: Mapping[str, Any], state: Mapping[str, Any], serial: int) -> str:
        if known_by := _PROPERTY.get(type_):
            return ":".join(str(_at(unwrap_secrets(inputs), path)) for path in known_by)
        return fake_cloud.resource_id(type_, f"{urn.rpartition('::')[2]}-{names.digits(urn, serial)}")

    def created(self, type_: str, id_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        shape = shapes.shape(type_)
        assert shape is not None  # noqa: S101 - Check has refused it
        physical = str(unwrap_secrets(inputs.get(shape.name or "", id_)))
        computed = fake_cloud.outputs(type_, physical, unwrap_secrets(inputs), self.account)
        computed.pop("kubeconfig", None)  # the eks component's, which hands it on
        state = {**computed, **inputs}
        if type_ == LAUNCH_TEMPLATE:
            state |= {"defaultVersion": 1}
        if type_ == CLUSTER:
            state |= self._control_plane(physical, inputs)
        return state | shapes.filled(shape, id_, state)

    def updated(
        self, type_: str, inputs: Mapping[str, Any], computed: Mapping[str, Any], changes: list[Change]
    ) -> dict[str, Any]:
        after = {**computed, **inputs}
        if type_ == LAUNCH_TEMPLATE and any(replacement.makes_version(c.path[0]) for c in changes):
            after["latestVersion"] = UNKNOWN
        if type_ == CLUSTER:
            after |= self._control_plane(str(unwrap_secrets(inputs["name"])), inputs)
        return after

    def settled(self, after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        if after.get("latestVersion") == UNKNOWN:
            return {**after, "latestVersion": int(before["latestVersion"]) + 1}
        return dict(after)

    def may_delete(self, type_: str, state: Mapping[str, Any]) -> None:
        if type_ == CLUSTER and state.get("deletionProtection"):
            raise server.RefusedError(
                f"InvalidRequestException: cluster {state['name']} has deletion protection enabled"
                "\n    fix: cluster: {deletionProtection: false} in the fleet, `pulumi up`, then destroy"
            )

    def answer(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        result = fake_cloud.lookup(token, arguments, self.account)
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


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


if __name__ == "__main__":
    server.serve(Aws(os.environ))
