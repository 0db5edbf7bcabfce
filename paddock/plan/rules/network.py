"""The VPC and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation

_NEW_RULES = {types.SECURITY_GROUP_INGRESS_RULE: "ingress", types.SECURITY_GROUP_EGRESS_RULE: "egress"}
SSH = 22


class PrivateNodes(Rule):
    id = "PAD007"
    severity: ClassVar[Severity] = "error"
    title = "Nodes have no public address"
    why = "A node runs strangers' jobs; with a public address every port that a job opens is on the internet."
    fix = "private subnets for nodes, no associatePublicIpAddress, no mapPublicIpOnLaunch"
    equivalents = ("CKV_AWS_88", "CKV_AWS_130", "AWS-0164", "CIS 5.4.3")

    def check(self, context: Context) -> Iterator[Violation]:
        for item in context.all(types.LAUNCH_TEMPLATE):
            if any(
                fields.get(interface, "associatePublicIpAddress") in (True, "true")
                for interface in fields.items(item.inputs, "networkInterfaces")
            ):
                yield violation(
                    item, "instances get a public address", fix="networkInterfaces.associatePublicIpAddress: false"
                )
        for item in context.all(types.INSTANCE):
            if fields.get(item.inputs, "associatePublicIpAddress") is True:
                yield violation(item, "the instance gets a public address", fix="associatePublicIpAddress: false")
        for item in context.all(types.SUBNET):
            if fields.get(item.inputs, "mapPublicIpOnLaunch") is True:
                yield violation(item, "whatever starts here gets a public address", fix="mapPublicIpOnLaunch: false")
        public = set(self._public(context))
        for item in context.all(types.NODE_GROUP):
            if public & set(map(str, fields.items(item.inputs, "subnetIds"))):
                fix = "subnetIds: subnets whose route table leads to no internet gateway"
                yield violation(item, "nodes are in a subnet that the internet gateway serves", fix=fix)

    @staticmethod
    def _public(context: Context) -> Iterator[str]:
        """Ids of the subnets whose route table leads to an internet gateway."""
        tables = {
            fields.text(route.inputs, "routeTableId")
            for route in context.all(types.ROUTE)
            if fields.text(route.inputs, "gatewayId").startswith("igw-")
        } - {""}
        for association in context.all(types.ROUTE_TABLE_ASSOCIATION):
            if fields.text(association.inputs, "routeTableId") in tables and fields.text(
                association.inputs, "subnetId"
            ):
                yield fields.text(association.inputs, "subnetId")


def rules(context: Context) -> Iterator[tuple[Resource, str, Mapping[str, Any]]]:
    """Yield every rule of every security group: (resource that declares it, ingress or egress, the rule)."""
    for group in context.all(types.SECURITY_GROUP, types.DEFAULT_SECURITY_GROUP):
        for direction in ("ingress", "egress"):
            for rule in fields.items(group.inputs, direction):
                if isinstance(rule, Mapping):
                    yield group, direction, rule
    for rule in context.all(types.SECURITY_GROUP_RULE):
        yield rule, fields.text(rule.inputs, "type"), rule.inputs
    for type_, direction in _NEW_RULES.items():
        for rule in context.all(type_):
            yield rule, direction, {**rule.inputs, "protocol": rule.inputs.get("ipProtocol")}


def networks(rule: Mapping[str, Any]) -> list[Any]:
    cidrs = [*fields.items(rule, "cidrBlocks"), *fields.items(rule, "ipv6CidrBlocks")]
    return cidrs + [rule[key] for key in ("cidrIpv4", "cidrIpv6") if fields.is_set(rule.get(key))]


def has_port(rule: Mapping[str, Any], port: int) -> bool:
    first, last = rule.get("fromPort"), rule.get("toPort")
    every = str(rule.get("protocol")) in ("-1", "all")
    return every or (isinstance(first, int | float) and isinstance(last, int | float) and first <= port <= last)


def every_port(rule: Mapping[str, Any]) -> bool:
    return has_port(rule, 1) and has_port(rule, 65535)


class NothingIn(Rule):
    id = "PAD012"
    severity: ClassVar[Severity] = "error"
    title = "Security groups let nobody in from the internet, and every rule says what it is for"
    why = "Nodes call out and are never called; a rule without a reason is a rule that nobody dares to remove."
    fix = "name a network or a security group as the source, and give group and rules a description"
    equivalents = (
        "CKV_AWS_23", "CKV_AWS_24", "CKV_AWS_25", "CKV_AWS_260", "CKV_AWS_277", "AWS-0099", "AWS-0124"
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for group in context.all(types.SECURITY_GROUP):
            description = fields.get(group.inputs, "description")
            if description in (None, "", "Managed by Pulumi", "Managed by Terraform"):
                yield violation(group, "it has no description", fix="description: what the group is for")
        for where, direction, rule in rules(context):
            if not fields.is_set(rule.get("description")):
                fix = "description: whom the rule lets talk to whom"
                yield violation(where, f"an {direction} rule has no description", fix=fix)
            if direction == "ingress" and (wide := [str(cidr) for cidr in networks(rule) if fields.is_internet(cidr)]):
                fix = "a network or a security group as the rule's source"
                yield violation(where, f"lets {', '.join(wide)} in", fix=fix)


class EgressNamed(Rule):
    id = "PAD013"
    severity: ClassVar[Severity] = "warning"
    title = "Security groups do not let everything out to everywhere"
    why = "What a stolen build can send, and over which protocol, is bounded only by its egress."
    fix = "name the ports: 443 is enough for packages, registries and AWS; else a suppression that says why"
    equivalents = ("CKV_AWS_382", "AWS-0104")

    def check(self, context: Context) -> Iterator[Violation]:
        for where, direction, rule in rules(context):
            if direction == "egress" and every_port(rule) and any(map(fields.is_internet, networks(rule))):
                yield violation(where, "every protocol and port may go out to everywhere")


class FlowLogs(Rule):
    id = "PAD014"
    severity: ClassVar[Severity] = "error"
    title = "Every VPC keeps flow logs, and its default security group is shut"
    why = "Flow logs are the only record of whom a job talked to; the default group lets its members do as they like."
    fix = "a FlowLog and a DefaultSecurityGroup without rules for the VPC"
    equivalents = ("CKV2_AWS_11", "CKV2_AWS_12", "AWS-0178", "AWS-0173")

    def check(self, context: Context) -> Iterator[Violation]:
        for vpc in context.all(types.VPC):
            if not any(
                fields.text(log.inputs, "trafficType") in ("", "ALL", "REJECT")
                for log in context.refer(types.FLOW_LOG, "vpcId", vpc)
            ):
                yield violation(vpc, "it keeps no flow logs", fix="a FlowLog with trafficType ALL for the VPC")
            shut = list(context.refer(types.DEFAULT_SECURITY_GROUP, "vpcId", vpc))
            if not shut:
                fix = "a DefaultSecurityGroup without rules for the VPC"
                yield violation(vpc, "its default security group is open among its members", fix=fix)
            for group in shut:
                if fields.items(group.inputs, "ingress") or fields.items(group.inputs, "egress"):
                    fix = "remove its rules"
                    yield violation(group, "the default security group lets traffic through", fix=fix)


RULES = (PrivateNodes(), NothingIn(), EgressNamed(), FlowLogs())
