"""Adopted subnets and their free addresses, and who may reach the Kubernetes API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Network

from paddock.fleet import ExistingNetwork, NewCluster
from paddock.onboarding.init.address import AddressUnknown, public_network
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.before_up import DOCUMENTATION
from paddock.plan.quota import QuotaNeed

AREA = "network"
_result = partial(Result, area=AREA)


def subnet(need: QuotaNeed) -> Callable[[Context], Iterator[Result]]:
    """Return the check of one adopted subnet."""
    return partial(_subnet, need)


def _subnet(need: QuotaNeed, context: Context) -> Iterator[Result]:
    (id_,) = need.zones
    network = context.fleet.network
    try:
        subnet = context.subnets().get(id_)
    except NotFound as error:  # EC2 names the first that is not there, and answers for none
        yield _result(status="fail", subject=id_, message=str(error), fix="network.existing.subnets of the stack file")
        return
    if subnet is None:
        yield _result(status="fail", subject=id_, message=f"there is no such subnet in {context.fleet.region}",
                      fix="network.existing.subnets of the stack file")  # fmt: skip
        return
    if isinstance(network, ExistingNetwork) and subnet["VpcId"] != network.existing.vpc:
        message = f"it is in {subnet['VpcId']}, not in {network.existing.vpc}"
        yield _result(status="fail", subject=id_, message=message, fix=f"network.existing.vpc: {subnet['VpcId']}")
        return
    free = int(subnet["AvailableIpAddressCount"])
    amounts = (
        Amount(name="free", value=free, unit="address", source="ec2:DescribeSubnets", as_of=context.today.isoformat()),
        Amount(name="need", value=need.need, unit="address", source="plan", as_of=context.today.isoformat()),
    )
    message = f"{free} addresses are free in {subnet['AvailabilityZone']}, {need.need:g} are needed at most"
    if free >= need.need:
        yield _result(status="pass", subject=id_, message=message, amounts=amounts)
        return
    running = len(context.nodes())
    if running:
        message += f"; {running} nodes of this fleet run already and have theirs"
    yield _result(
        status="warn" if running else "fail", subject=id_, message=message, amounts=amounts,
        fix="smaller pools.<name>.nodes.max, or larger subnets in network.existing.subnets",
    )  # fmt: skip


def endpoint(context: Context) -> Iterator[Result]:
    """Check the networks that may reach the Kubernetes API, and whether this machine is in one."""
    cluster = context.fleet.cluster
    if not isinstance(cluster, NewCluster):
        return
    key = "cluster.endpoint.allow"
    if cluster.endpoint.allow == "any":
        message = "the Kubernetes API is open to the whole internet"
        yield _result(status="warn", subject=key, message=message, fix=f"{key} with the networks of your people and CI")
        return
    if not cluster.endpoint.public:
        message = "the Kubernetes API answers inside the VPC alone: run pulumi up there"
        yield _result(status="warn", subject=key, message=message, fix=f"a machine in the VPC, or {key}")
        return
    networks = [IPv4Network(cidr) for cidr in cluster.endpoint.cidrs]
    if examples := [str(cidr) for cidr in networks if any(map(cidr.subnet_of, DOCUMENTATION))]:
        message = f"{', '.join(examples)} are an example's and nobody's"
        fix = "your own networks; curl -s https://checkip.amazonaws.com prints this machine's address"
        yield _result(status="fail", subject=key, message=message, fix=fix)
        return
    try:
        own = IPv4Network(public_network())
    except AddressUnknown as error:
        raise Unavailable(str(error).partition("\n")[0], "curl -s https://checkip.amazonaws.com") from None
    inside = any(own.subnet_of(network) for network in networks)
    listed = ", ".join(map(str, networks))
    if inside:
        yield _result(status="pass", subject=key, message=f"this machine's {own} is in {listed}")
        return
    message = f"this machine's {own} is in none of {listed}: pulumi up from here stops at the first chart"
    yield _result(status="warn", subject=key, message=message, fix=f"add {own} to {key}, or run it where {key} says")
