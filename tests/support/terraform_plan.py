"""A planned graph as a Terraform plan in JSON, for tools that read nothing else: checkov, trivy and their like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.plan import fields
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.values import SECRET, UNKNOWN, Ref, Secret

_PROVIDER = "registry.terraform.io/hashicorp/aws"
_MODULES = {"ec2", "index", "cloudwatch", "ebs", "vpc"}
"""Pulumi's modules that Terraform's names leave out, or write another way below."""
_TYPES = {
    "aws:cloudwatch/logGroup:LogGroup": "aws_cloudwatch_log_group",
    "aws:cloudwatch/dashboard:Dashboard": "aws_cloudwatch_dashboard",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "aws_cloudwatch_metric_alarm",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "aws_iam_openid_connect_provider",
}
_MAPS = {"tags", "labels", "default_tags", "resource_tags", "ami_tags", "parameters"}
"""Attributes that are maps of the user's own keys, not blocks."""
_SINGULAR = {
    ("aws_ecr_repository", "encryption_configurations"): "encryption_configuration",
    ("aws_imagebuilder_image_recipe", "block_device_mappings"): "block_device_mapping",
    ("aws_imagebuilder_image_recipe", "components"): "component",
    ("aws_imagebuilder_image_recipe", "parameters"): "parameter",
    ("aws_imagebuilder_distribution_configuration", "distributions"): "distribution",
    ("aws_eks_node_group", "taints"): "taint",
    ("aws_iam_openid_connect_provider", "client_id_lists"): "client_id_list",
    ("aws_iam_openid_connect_provider", "thumbprint_lists"): "thumbprint_list",
}
"""Pulumi writes lists in the plural; Terraform's blocks are named for one."""


def convertible(graph: Graph) -> tuple[Resource, ...]:
    """Return the resources that a Terraform plan can say: those of the AWS provider."""
    return tuple(
        resource for resource in graph.resources.values() if resource.custom and resource.type.startswith("aws:")
    )


def plan(graph: Graph) -> dict[str, Any]:
    """Return the document that `terraform show -json` would print for a plan that makes everything new."""
    resources = convertible(graph)
    addresses = _addresses(resources)
    planned, changes, configured = [], [], []
    for resource in resources:
        type_, name = addresses[resource.urn].split(".", 1)
        head = {"address": addresses[resource.urn], "mode": "managed", "type": type_, "name": name}
        values = _block(resource.inputs, type_)
        planned.append({**head, "provider_name": _PROVIDER, "schema_version": 0, "values": values})
        change = {"actions": ["create"], "before": None, "after": values, "after_unknown": {}}
        changes.append({**head, "provider_name": _PROVIDER, "change": change})
        configured.append(
            {
                **head,
                "provider_config_key": "aws",
                "schema_version": 0,
                "expressions": _references(resource, type_, addresses),
            }
        )
    return {
        "format_version": "1.2",
        "terraform_version": "1.9.0",
        "planned_values": {"root_module": {"resources": planned}},
        "resource_changes": changes,
        "configuration": {"root_module": {"resources": configured}},
    }


def terraform_type(type_: str) -> str:
    """`aws:ec2/launchTemplate:LaunchTemplate` -> `aws_launch_template`."""
    if type_ in _TYPES:
        return _TYPES[type_]
    _, module, _ = type_.split(":")
    package, _, name = module.partition("/")
    return "_".join(part for part in ("aws", "" if package in _MODULES else package, _snake(name)) if part)


def _addresses(resources: tuple[Resource, ...]) -> dict[str, str]:
    """Return the address of each resource: Terraform's names have no dots or slashes, so they may need a number."""
    address_by_urn: dict[str, str] = {}
    used: set[str] = set()
    for resource in resources:
        base = f"{terraform_type(resource.type)}.{re.sub(r'[^A-Za-z0-9_-]', '_', resource.name)}"
        address, number = base, 1
        while address in used:
            number += 1
            address = f"{base}_{number}"
        used.add(address)
        address_by_urn[resource.urn] = address
    return address_by_urn


def _references(resource: Resource, type_: str, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the resources that each argument is computed from, by which tools see what belongs together."""
    references_by_argument = {}
    for key, urns in resource.property_dependencies.items():
        named = [addresses[urn] for urn in urns if urn in addresses]
        if named:
            references = [reference for address in named for reference in (f"{address}.id", address)]
            references_by_argument[_name(type_, key)] = {"references": references}
    return references_by_argument


def _name(type_: str, key: str) -> str:
    snake = _snake(key)
    return _SINGULAR.get((type_, snake), snake)


def _block(inputs: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """Return a block's arguments. What is not known yet is left out, as Terraform does."""
    arguments = {}
    for key, value in inputs.items():
        value = fields.unwrap(value) if not isinstance(value, Secret) else SECRET
        if value is not None and value != UNKNOWN:
            arguments[_name(type_, key)] = _value(value, _snake(key), type_)
    return arguments


def _value(value: Any, name: str, type_: str) -> Any:
    match value:
        case Mapping() if name in _MAPS:
            return {key: item for key, item in value.items() if item != UNKNOWN}
        case Mapping():
            return [_block(value, type_)]
        case list() | tuple():
            return [_block(item, type_) if isinstance(item, Mapping) else item for item in value if item != UNKNOWN]
        case Secret():
            return SECRET
        case Ref(urn=urn):
            return urn
        case _:
            return value


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
