"""The written-down children of `eks.Cluster` against recordings of the real component under the real engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pytest

from paddock.plan.engine import eks_component
from paddock.plan.engine.graph import Graph, PlanError, Resource
from paddock.plan.engine.recorder import record
from paddock.plan.engine.values import UNKNOWN, redact

# Recorded with arguments that the fleet does not use. CoreDNS inside the component is left out of the comparison, and
# a public endpoint said as an argument is said by a transform here, as the fleet's program does.
VARIANTS = {
    "36_intended_candidate": None,
    "02_base_skip_sg_true": None,
    "05_private_only": None,
    "14_transform_creator_admin_false": "no-admin",
    "39_transform_sets_public_access_and_protect": "public",
}
_AUTONAME = re.compile(r"-[0-9a-f]{7}$")


def _entries(recorded: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "principal_arn": entry["principal_arn"],
            "access_policies": {
                key: {"policy_arn": arn, "access_scope": {"type": "cluster"}} for key, arn in entry["policies"].items()
            },
        }
        for name, entry in recorded.items()
    }


def _transform(kind: str | None, public: bool | None) -> pulumi.ResourceTransform:
    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
        props: dict[str, Any] = dict(args.props)
        if args.type_ == "aws:eks/cluster:Cluster":
            if public is not None:
                props["vpcConfig"] = {**props["vpcConfig"], "endpointPublicAccess": public}
            if kind == "no-admin":
                props["accessConfig"] = {**props["accessConfig"], "bootstrapClusterCreatorAdminPermissions": False}
            if kind == "public":
                props["vpcConfig"] = {**props["vpcConfig"], "endpointPublicAccess": True}
                args.opts.protect = True
        if args.type_ == "aws:eks/addon:Addon" and kind == "no-admin":
            props["preserve"] = False
        return pulumi.ResourceTransformResult(props, args.opts)

    return transform


def _plan(variant: dict[str, Any], kind: str | None, *, preview: bool) -> Graph:
    arguments = {
        k: v for k, v in variant["cluster_args"].items() if k not in ("coredns_addon_options", "endpoint_public_access")
    }
    public = variant["cluster_args"].get("endpoint_public_access")

    def program() -> None:
        cloud = aws.Provider("awsmain", region="us-east-1")
        built = pulumi.ResourceOptions(provider=cloud)
        vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=built)
        subnets = [
            aws.ec2.Subnet(f"private-{n}", vpc_id=vpc.id, cidr_block=f"10.0.{n}.0/24", opts=built) for n in range(3)
        ]
        key = aws.kms.Key("secrets", opts=built)
        eks.Cluster(
            "cluster",
            **arguments | {"access_entries": _entries(arguments["access_entries"])},
            vpc_id=vpc.id,
            private_subnet_ids=[subnet.id for subnet in subnets],
            encryption_config_key_arn=key.arn,
            opts=pulumi.ResourceOptions(provider=cloud, transforms=[_transform(kind, public)]),
        )

    return record(program, project="test", stack="unit", config={}, preview=preview)


def _short(urn: str) -> str:
    """`type::name`, the form of the recordings."""
    _, _, rest = urn.partition("::")
    _, types, name = rest.split("::")
    return f"{types.rpartition('$')[2]}::{name}"


def _normalised(resource: Resource) -> dict[str, Any]:
    inputs = {key: _normal(redact(value)) for key, value in resource.inputs.items()}
    if resource.type == "pulumi:providers:kubernetes":
        inputs = {}  # the component writes the kubeconfig itself; nobody uses that provider
    return {
        "urn": resource.urn.split("::")[2],
        "custom": resource.custom,
        "parent": _short(resource.parent),
        "dependencies": sorted(map(_short, resource.dependencies)),
        "propertyDependencies": {
            key: sorted(map(_short, urns)) for key, urns in resource.property_dependencies.items() if urns
        },
        "inputs": inputs,
        "ignoreChanges": list(resource.ignore_changes),
        "protect": resource.protect,
    }


def _recorded(child: dict[str, Any], *, named: bool) -> dict[str, Any]:
    inputs = {key: _normal(value) for key, value in child["inputs"].items()}
    if child["type"] == "pulumi:providers:kubernetes":
        inputs = {}
    if child["type"] == "aws:iam/role:Role" or not named:
        inputs.pop("name", None)  # the engine's
    return {
        "urn": child["urnType"],
        "custom": child["custom"],
        "parent": child["parent"],
        "dependencies": sorted(child["dependencies"]),
        "propertyDependencies": {k: sorted(v) for k, v in child["propertyDependencies"].items()},
        "inputs": inputs,
        "ignoreChanges": child.get("ignoreChanges", []),
        "protect": child.get("protect", False),
    }


def _normal(value: Any) -> Any:
    """Return the same text for the same thing: made-up ids, ARNs and names differ between an engine's run and ours."""
    match value:
        case "<unknown at preview>":
            return UNKNOWN
        case str() if value.startswith("arn:aws:kms:"):
            return "<key>"
        case str() if re.match(r"arn:aws:iam::\d+:role/cluster-eksRole-role", value):
            return "<role>"
        case str() if value.startswith("subnet-"):
            return "<subnet>"
        case str():
            return _AUTONAME.sub("", value)
        case dict():
            return {key: _normal(item) for key, item in value.items()}
        case list():
            return [_normal(item) for item in value]
        case _:
            return value


@pytest.fixture(scope="module")
def recordings(reference_data: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((reference_data / "eks_cluster_children.json").read_text(encoding="utf-8"))
    return result


@pytest.mark.parametrize("run", ["preview", "up"])
@pytest.mark.parametrize("name", VARIANTS)
def test_children_are_those_of_the_real_component(recordings: dict[str, Any], name: str, run: str) -> None:
    variant = recordings[name]
    if run == "preview" and "name" not in variant["cluster_args"]:
        pytest.skip("an engine names the cluster during a preview; the fleet's program always names it itself")
    children = variant.get("children_preview" if run == "preview" else "children_after_up")
    if children is None:
        pytest.skip("the recording has no preview")
    result = _plan(variant, VARIANTS[name], preview=run == "preview")
    own = {f"{r.type}::{r.name}": _normalised(r) for r in result.resources.values() if r.expanded}
    theirs = {
        f"{child['type']}::{child['name']}": _recorded(child, named="name" in variant["cluster_args"])
        for child in children
        if child["name"] != "cluster-coredns"
    }

    assert own == theirs


def test_children_are_marked_as_taken_from_recordings() -> None:
    result = _plan({"cluster_args": {**_ARGUMENTS, "name": "c"}}, None, preview=False)

    assert {r.name for r in result.resources.values() if not r.expanded} >= {"cluster", "vpc", "secrets", "awsmain"}
    assert len([r for r in result.resources.values() if r.expanded]) == 10


_ARGUMENTS: dict[str, Any] = {
    "version": "1.35",
    "skip_default_node_group": True,
    "skip_default_security_groups": True,
    "create_oidc_provider": False,
    "authentication_mode": "API",
    "access_entries": {
        "ops": {"principal_arn": "arn:aws:iam::123456789012:role/Ops", "policies": {"view": "arn:aws:eks::aws:v"}}
    },
}


@pytest.mark.parametrize(("changed", "message"), [
    ({"authentication_mode": "CONFIG_MAP"}, "authenticationMode"),
    ({"skip_default_node_group": False}, "skipDefaultNodeGroup"),
    ({"create_oidc_provider": True}, "createOidcProvider"),
    ({"desired_capacity": 3}, "desiredCapacity"),
    ({"vpc_cni_options": {"warm_ip_target": 4}}, "vpcCniOptions.warmIpTarget"),
    ({"kube_proxy_addon_options": {"enabled": False}}, "kubeProxyAddonOptions.enabled"),
])  # fmt: skip
def test_argument_whose_effect_is_not_written_down_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        _plan({"cluster_args": _ARGUMENTS | changed}, None, preview=False)


# As the component's source has them (nodejs/eks/addons/cni-addon.ts, nodejs/eks/cluster/cluster.ts of the 4.4 line).
@pytest.mark.parametrize(("arguments", "child", "key", "expected"), [
    ({"vpcCniOptions": {"logLevel": "INFO"}}, "vpc-cni", "AWS_VPC_K8S_CNI_LOGLEVEL", "INFO"),
    ({"vpcCniOptions": {"logLevel": "INFO"}}, "vpc-cni", "AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "DEBUG"),
    ({"vpcCniOptions": {"enableNetworkPolicy": False}}, "vpc-cni", "enableNetworkPolicy", "false"),
    ({"kubernetesServiceIpAddressRange": "172.20.0.0/16"}, "cluster", "ipFamily", "ipv4"),
    ({"kubernetesServiceIpAddressRange": "172.20.0.0/16"}, "cluster", "serviceIpv4Cidr", "172.20.0.0/16"),
    ({"upgradePolicy": {"supportType": "STANDARD"}}, "cluster", "supportType", "STANDARD"),
])  # fmt: skip
def test_options_arrive_where_the_component_puts_them(
    arguments: dict[str, Any], child: str, key: str, expected: str
) -> None:
    required = {
        "authenticationMode": "API",
        "createOidcProvider": False,
        "skipDefaultNodeGroup": True,
        "skipDefaultSecurityGroups": True,
    }
    result = {c.key: c for c in eks_component.children("cluster", required | arguments, {})}

    text = repr(result[child].inputs).replace('"', "'").replace(" ", "")
    assert f"'{key}':'{expected}'" in text
