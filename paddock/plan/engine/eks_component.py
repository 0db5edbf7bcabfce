"""Resources that `pulumi_eks.Cluster` registers under itself.

The component runs in a process of its own, which a plan does not have. Its children are written down here as
recordings of the real one show them; a test compares the two, for the arguments that the fleet uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TYPE = "eks:index:Cluster"
OUTPUTS = {"eksCluster": "cluster"}
"""Output of the component -> key of the child that it is."""

_ATTACHMENT = "4b490823"
"""The component names the attachment after a hash of the policy's ARN, AmazonEKSClusterPolicy."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a sibling: `name` of the child with this key."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that the component works out from others: unknown as a whole while a part of it is."""

    value: Any


class NotFollowed(Exception):
    """An argument of the component whose effect is not written down here."""


@dataclass(frozen=True, slots=True)
class Child:
    """A resource that the component makes. Dependencies are keys of siblings, or URNs from outside."""

    key: str
    type: str
    name: str
    custom: bool = True
    parent: str = ""
    """Key of the parent; empty for the component itself."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore_changes: tuple[str, ...] = ()


def children(
    name: str, args: Mapping[str, Any], property_dependencies: Mapping[str, tuple[str, ...]]
) -> Iterator[Child]:
    """Yield the component's children, parents before their children.

    `args` are the component's inputs in wire form; `property_dependencies` the URNs behind each of them. What the
    component itself depends on its children do not. Only arguments that the fleet uses are followed; any other raises
    NotFollowed.
    """
    _refuse(args, _FOLLOWED, "")
    _refuse(args.get("vpcCniOptions", {}), {"addonVersion", "enableNetworkPolicy", "logLevel"}, "vpcCniOptions.")
    _refuse(args.get("kubeProxyAddonOptions", {}), {"version"}, "kubeProxyAddonOptions.")
    for argument, value in _REQUIRED.items():
        if args.get(argument) != value:
            raise NotFollowed(f"{argument} of eks.Cluster must be {json.dumps(value)} to be planned without an engine")
    tags = {"tags": args["tags"]} if args.get("tags") else {}
    yield Child("service-role", "eks:index:ServiceRole", f"{name}-eksRole", custom=False)
    yield Child(
        "role",
        "aws:iam/role:Role",
        f"{name}-eksRole-role",
        parent="service-role",
        inputs={"assumeRolePolicy": _TRUST, "description": "Allows EKS to manage clusters on your behalf.", **tags},
    )
    yield Child(
        "attachment",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        f"{name}-eksRole-{_ATTACHMENT}",
        parent="service-role",
        inputs={"policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy", "role": Output("role", "id")},
        dependencies=("role",),
        property_dependencies={"role": ("role",)},
    )
    yield _control_plane(name, args, property_dependencies)
    entries = args.get("accessEntries", {})
    for key, entry in entries.items():
        yield from _access(name, key, entry)
    yield Child(
        "kube-proxy",
        "aws:eks/addon:Addon",
        f"{name}-kube-proxy",
        inputs=_addon("kube-proxy", args.get("kubeProxyAddonOptions", {}).get("version")) | tags,
        **_ON_CLUSTER,
    )
    yield Child(
        "vpc-cni-component",
        "eks:index:VpcCniAddon",
        f"{name}-vpc-cni",
        custom=False,
        dependencies=tuple(f"entry-{key}" for key in entries),
    )
    cni = args.get("vpcCniOptions", {})
    yield Child(
        "vpc-cni",
        "aws:eks/addon:Addon",
        f"{name}-vpc-cni",
        parent="vpc-cni-component",
        inputs=_addon("vpc-cni", cni.get("addonVersion")) | {"configurationValues": _cni_configuration(cni)} | tags,
        **_ON_CLUSTER,
    )
    yield Child(
        "kubernetes-provider",
        "pulumi:providers:kubernetes",
        f"{name}-eks-k8s",
        inputs={"kubeconfig": Output("cluster", "kubeconfig")},
        dependencies=("cluster",),
        property_dependencies={"kubeconfig": ("cluster",)},
    )


_REQUIRED = {
    "authenticationMode": "API",
    "createOidcProvider": False,
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
}
"""Without them the component makes more than is listed here."""
_FOLLOWED = {
    *_REQUIRED,
    "accessEntries",
    "deletionProtection",
    "enabledClusterLogTypes",
    "encryptionConfigKeyArn",
    "endpointPrivateAccess",
    "endpointPublicAccess",
    "kubeProxyAddonOptions",
    "kubernetesServiceIpAddressRange",
    "name",
    "privateSubnetIds",
    "publicAccessCidrs",
    "publicSubnetIds",
    "tags",
    "upgradePolicy",
    "version",
    "vpcCniOptions",
    "vpcId",
}


def _refuse(args: Mapping[str, Any], followed: set[str], prefix: str) -> None:
    for argument in sorted(set(args) - followed):
        raise NotFollowed(f"{prefix}{argument} of eks.Cluster cannot be planned without an engine")


_ON_CLUSTER: dict[str, Any] = {"dependencies": ("cluster",), "property_dependencies": {"clusterName": ("cluster",)}}

_TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                "Effect": "Allow",
                "Principal": {"Service": ["eks.amazonaws.com"]},
            }
        ],
    },
    separators=(",", ":"),
)


def _control_plane(name: str, args: Mapping[str, Any], outer: Mapping[str, tuple[str, ...]]) -> Child:
    subnets = Computed([*args.get("publicSubnetIds", []), *args.get("privateSubnetIds", [])])
    vpc: dict[str, Any] = {"subnetIds": subnets}
    for key in ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs"):
        if key in args:
            vpc[key] = args[key]
    inputs: dict[str, Any] = {
        "accessConfig": {
            "authenticationMode": args["authenticationMode"],
            "bootstrapClusterCreatorAdminPermissions": True,
        },
        "bootstrapSelfManagedAddons": True,
        "roleArn": Output("role", "arn"),
        "vpcConfig": vpc,
        "tags": {"Name": f"{name}-eksCluster", **args.get("tags", {})},
    }
    for key in ("deletionProtection", "enabledClusterLogTypes", "name", "upgradePolicy", "version"):
        if key in args:
            inputs[key] = args[key]
    if "encryptionConfigKeyArn" in args:
        key_arn = args["encryptionConfigKeyArn"]
        inputs["encryptionConfig"] = Computed({"provider": {"keyArn": key_arn}, "resources": ["secrets"]})
    if "kubernetesServiceIpAddressRange" in args:
        services = args["kubernetesServiceIpAddressRange"]
        inputs["kubernetesNetworkConfig"] = Computed({"ipFamily": "ipv4", "serviceIpv4Cidr": services})
    behind = {
        "encryptionConfig": outer.get("encryptionConfigKeyArn", ()),
        "roleArn": ("role",),
        "vpcConfig": tuple(sorted({*outer.get("privateSubnetIds", ()), *outer.get("publicSubnetIds", ())})),
    }
    needed = {urn for urns in behind.values() for urn in urns}
    return Child(
        "cluster",
        "aws:eks/cluster:Cluster",
        f"{name}-eksCluster",
        inputs=inputs,
        dependencies=("attachment", *sorted(needed)),
        property_dependencies={key: urns for key, urns in behind.items() if urns},
        ignore_changes=("accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons"),
    )


def _access(name: str, key: str, entry: Mapping[str, Any]) -> Iterator[Child]:
    principal = entry["principalArn"]
    cluster = Output("cluster", "name")
    yield Child(
        f"entry-{key}",
        "aws:eks/accessEntry:AccessEntry",
        f"{name}-{key}",
        inputs={"clusterName": cluster, "principalArn": principal},
        **_ON_CLUSTER,
    )
    for policy, association in entry.get("accessPolicies", {}).items():
        yield Child(
            f"policy-{key}-{policy}",
            "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
            f"{name}-{key}-{policy}",
            parent=f"entry-{key}",
            inputs={
                "accessScope": association["accessScope"],
                "clusterName": cluster,
                "policyArn": association["policyArn"],
                "principalArn": principal,
            },
            dependencies=(f"entry-{key}", "cluster"),
            property_dependencies={"clusterName": ("cluster",)},
        )


def _addon(name: str, version: str | None) -> dict[str, Any]:
    return {
        "addonName": name,
        **({"addonVersion": version} if version else {}),
        "clusterName": Output("cluster", "name"),
        "preserve": True,
        "resolveConflictsOnCreate": "OVERWRITE",
        "resolveConflictsOnUpdate": "OVERWRITE",
    }


def _cni_configuration(options: Mapping[str, Any]) -> str:
    configuration: dict[str, Any] = {
        "env": {
            "AWS_VPC_ENI_MTU": "9001",
            "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "false",
            "AWS_VPC_K8S_CNI_EXTERNALSNAT": "false",
            "AWS_VPC_K8S_CNI_LOGLEVEL": options.get("logLevel", "DEBUG"),
            "AWS_VPC_K8S_CNI_LOG_FILE": "/host/var/log/aws-routed-eni/ipamd.log",
            "AWS_VPC_K8S_CNI_VETHPREFIX": "eni",
            "AWS_VPC_K8S_PLUGIN_LOG_FILE": "/var/log/aws-routed-eni/plugin.log",
            "AWS_VPC_K8S_PLUGIN_LOG_LEVEL": "DEBUG",
            "ENABLE_POD_ENI": "false",
            "WARM_ENI_TARGET": "1",
        },
        "init": {"env": {"DISABLE_TCP_EARLY_DEMUX": "false"}},
    }
    if "enableNetworkPolicy" in options:
        configuration["enableNetworkPolicy"] = "true" if options["enableNetworkPolicy"] else "false"
    return json.dumps(configuration, separators=(",", ":"), sort_keys=True)
