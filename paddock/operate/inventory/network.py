"""An adopted network: where the routes of its subnets lead, its endpoints, and how the CNI takes addresses there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from paddock.fleet.sizing.addresses import Cni
from paddock.operate.sources.aws import AwsReader

INTERNET = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class WaysOut:
    """Subnets with a default route that works, those whose route table has the S3 gateway, and services of AWS.

    `services` are named as in `network.endpoints`, of interface endpoints whose private DNS is on.
    """

    internet: frozenset[str]
    s3: frozenset[str]
    services: frozenset[str]


def read_ways_out(aws: AwsReader, region: str, vpc: str, subnets: Mapping[str, Mapping[str, Any]]) -> WaysOut:
    """Return the ways out of `subnets`, which are EC2's answers by id. Raises Unavailable."""
    here = [{"Name": "vpc-id", "Values": [vpc]}]
    tables = aws.pages("ec2", "describe_route_tables", "RouteTables", Filters=here)
    endpoints = aws.pages("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=here)
    endpoints = [endpoint for endpoint in endpoints if str(endpoint.get("State", "")).lower() == "available"]
    prefix = f"com.amazonaws.{region}."
    by_service = [(str(endpoint["ServiceName"]).removeprefix(prefix), endpoint) for endpoint in endpoints]
    gateways = {
        table
        for service, endpoint in by_service
        if service == "s3" and endpoint.get("VpcEndpointType") == "Gateway"
        for table in endpoint.get("RouteTableIds", ())
    }
    table_of = {subnet: _table(tables, subnet) for subnet in subnets}
    return WaysOut(
        internet=frozenset(id_ for id_, table in table_of.items() if _leads_out(table, subnets[id_])),
        s3=frozenset(id_ for id_, table in table_of.items() if table.get("RouteTableId") in gateways),
        services=frozenset(
            service
            for service, endpoint in by_service
            if endpoint.get("VpcEndpointType") == "Interface" and endpoint.get("PrivateDnsEnabled")
        ),
    )


def _table(tables: Iterable[Mapping[str, Any]], subnet: str) -> Mapping[str, Any]:
    """Return the route table of a subnet: its own, or the VPC's main one."""
    main: Mapping[str, Any] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def _leads_out(table: Mapping[str, Any], subnet: Mapping[str, Any]) -> bool:
    """Return whether a default route leads out. An internet gateway is one for public addresses alone."""
    return any(
        route.get("DestinationCidrBlock") == INTERNET
        and route.get("State", "active") == "active"
        and (not str(route.get("GatewayId", "")).startswith("igw-") or subnet.get("MapPublicIpOnLaunch"))
        for route in table.get("Routes", ())
    )


def read_names(aws: AwsReader, vpc: str) -> dict[str, bool]:
    """Return the two settings of a VPC that give names to what is in it, by attribute. Raises Unavailable, NotFound."""
    attributes = ("enableDnsSupport", "enableDnsHostnames")
    answers = {name: aws.read("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name) for name in attributes}
    return {name: bool(answer[name[0].upper() + name[1:]]["Value"]) for name, answer in answers.items()}


def read_cni(aws: AwsReader, cluster: str) -> Cni:
    """Return how the VPC CNI of an EKS cluster takes addresses, by the settings of its add-on.

    Raises Unavailable, and NotFound where the CNI is not an add-on of EKS.
    """
    addon = aws.read("eks", "describe_addon", clusterName=cluster, addonName="vpc-cni")["addon"]
    written = yaml.safe_load(addon.get("configurationValues") or "{}")  # JSON or YAML, as EKS takes both
    variables = written.get("env", {}) if isinstance(written, dict) else {}
    values = {name: str(value).lower() for name, value in variables.items()} if isinstance(variables, dict) else {}
    minimum = values.get("MINIMUM_IP_TARGET", "")
    return Cni(
        prefixes=values.get("ENABLE_PREFIX_DELEGATION") == "true",
        by_address=bool({"WARM_IP_TARGET", "MINIMUM_IP_TARGET"} & values.keys()),
        minimum=int(minimum) if minimum.isdecimal() else 0,
        elsewhere=values.get("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG") == "true",
    )
