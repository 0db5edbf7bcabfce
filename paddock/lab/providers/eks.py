"""A stand-in for pulumi-resource-eks: builds `eks.Cluster` from the same list of children as a plan does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from pulumi.runtime.proto import provider_pb2, resource_pb2, resource_pb2_grpc

from paddock.lab.providers import server, wire
from paddock.lab.providers.aws_command import KUBECONFIG
from paddock.plan.engine import eks_component
from paddock.plan.engine.values import UNKNOWN

_VERSIONS = {"pulumi:providers:kubernetes": version("pulumi-kubernetes")}
"""Without one the engine takes none for the first `up`, and the one it has found by then for the second."""


class Eks(server.Provider):
    package = "eks"
    version = version("pulumi-eks")

    def Construct(self, request: Any, context: Any) -> Any:
        if request.type != eks_component.TYPE:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this stand-in does not build {request.type}")
        try:
            with grpc.insecure_channel(request.monitorEndpoint) as channel:
                monitor = resource_pb2_grpc.ResourceMonitorStub(channel)
                return _Component(request, monitor, self.environment).build()
        except eks_component.NotFollowed as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.RpcError as error:  # the engine has already reported what is wrong with a child
            context.abort(error.code(), error.details())


class _Component:
    """One cluster with its children, registered with the engine."""

    def __init__(
        self, request: Any, monitor: resource_pb2_grpc.ResourceMonitorStub, environment: Mapping[str, str]
    ) -> None:
        self.request, self.monitor, self.environment = request, monitor, environment
        self.urns: dict[str, str] = {}
        self.states: dict[str, tuple[str, dict[str, Any]]] = {}

    def build(self) -> Any:
        request = self.request
        inputs = wire.decode_struct(request.inputs)
        behind = {key: tuple(dependency.urns) for key, dependency in request.inputDependencies.items()}
        component = self._registered(
            behind,
            type=request.type,
            name=request.name,
            parent=request.parent,
            object=request.inputs,
            dependencies=request.dependencies,
            providers=request.providers,
            aliasURNs=request.aliases,
        )
        for child in eks_component.children(request.name, inputs, behind):
            self._register(child, self.urns.get(child.parent, component.urn))
        state = self._outputs()
        self.monitor.RegisterResourceOutputs(
            resource_pb2.RegisterResourceOutputsRequest(urn=component.urn, outputs=state)
        )
        depends = provider_pb2.ConstructResponse.PropertyDependencies(urns=[self.urns["cluster"]])
        dependencies = dict.fromkeys(state.fields, depends)
        return provider_pb2.ConstructResponse(urn=component.urn, state=state, stateDependencies=dependencies)

    def _register(self, child: eks_component.Child, parent: str) -> None:
        behind = {
            key: tuple(sorted(self.urns.get(urn, urn) for urn in all_))
            for key, all_ in child.property_dependencies.items()
        }
        own = child.custom and child.type.startswith("aws:")
        registered = self._registered(
            behind,
            type=child.type,
            name=child.name,
            custom=child.custom,
            parent=parent,
            object=wire.encode_struct(self._resolved(child.inputs)),
            dependencies=sorted({self.urns.get(urn, urn) for urn in child.dependencies}),
            provider=self.request.providers.get("aws", "") if own else "",
            version=_VERSIONS.get(child.type, ""),
            ignoreChanges=child.ignore_changes,
        )
        self.urns[child.key] = registered.urn
        self.states[child.key] = (registered.id, wire.decode_struct(registered.object))

    def _registered(self, behind: Mapping[str, tuple[str, ...]], **fields: Any) -> Any:
        made, able = resource_pb2.RegisterResourceRequest, ("acceptSecrets", "acceptResources", "supportsPartialValues")
        by_property = {key: made.PropertyDependencies(urns=urns) for key, urns in behind.items()}
        common = {"propertyDependencies": by_property, "protect": self.request.protect, **dict.fromkeys(able, True)}
        return self.monitor.RegisterResource(made(**fields, **common))

    def _resolved(self, value: Any) -> Any:
        """References to siblings as what they turned out to be."""
        match value:
            case eks_component.Output(key="cluster", name="kubeconfig"):
                return self._kubeconfig()
            case eks_component.Output(key=key, name=name):
                id_, state = self.states[key]
                return id_ or UNKNOWN if name == "id" else state.get(name, UNKNOWN)
            case eks_component.Computed(value=inner):
                resolved = self._resolved(inner)
                return UNKNOWN if wire.holds_unknown(resolved) else resolved
            case Mapping():
                return {key: self._resolved(item) for key, item in value.items()}
            case list():
                return [self._resolved(item) for item in value]
            case _:
                return value

    def _outputs(self) -> Any:
        _, cluster = self.states["cluster"]
        vpc, issuer = cluster.get("vpcConfig", UNKNOWN), cluster.get("identities")
        outputs = {
            "clusterSecurityGroupId": (vpc if isinstance(vpc, Mapping) else {}).get("clusterSecurityGroupId", UNKNOWN),
            "kubeconfig": self._kubeconfig(),
            "kubeconfigJson": self._kubeconfig(),
            "oidcIssuer": issuer[0]["oidcs"][0]["issuer"] if isinstance(issuer, list) else UNKNOWN,
        }
        state = wire.encode_struct(outputs)
        for output, key in eks_component.OUTPUTS.items():
            state.fields[output].CopyFrom(wire.reference(self.urns[key], self.states[key][0]))
        return state

    def _kubeconfig(self) -> str:
        """Return the lab's own where it has a cluster; else one with a token from AWS, as the component's."""
        if path := self.environment.get(KUBECONFIG):
            return Path(path).read_text(encoding="utf-8")
        _, cluster = self.states["cluster"]
        authority = cluster.get("certificateAuthority", UNKNOWN)
        endpoint = cluster.get("endpoint", UNKNOWN)
        if UNKNOWN in (authority, endpoint):
            return UNKNOWN
        version, words = "client.authentication.k8s.io/v1beta1", ["eks", "get-token", "--cluster-name", cluster["name"]]
        reached = {"server": endpoint, "certificate-authority-data": authority["data"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": reached}],
            "contexts": [{"name": "aws", "context": {"cluster": "kubernetes", "user": "aws"}}],
            "current-context": "aws",
            "users": [{"name": "aws", "user": {"exec": {"apiVersion": version, "command": "aws", "args": words}}}],
        }
        return json.dumps(config)


if __name__ == "__main__":
    server.serve(Eks(os.environ))
