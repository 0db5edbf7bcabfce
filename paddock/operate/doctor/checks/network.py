"""Adopted subnets: their free addresses and ways out; and who may reach the Kubernetes API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Network

from paddock.catalog.limits import limit
from paddock.fleet import ExistingCluster, ExistingNetwork, NewCluster, ways_out
from paddock.fleet.sizing import addresses
from paddock.init.address import AddressUnknown, public_network
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result
from paddock.operate.inventory.network import read_cni, read_names, read_ways_out
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.before_up import DOCUMENTATION

AREA, ZONES = "network", "zones of the subnets"
_BARRED = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""IDs of zones without a control plane: docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, 2026-11-28."""
_result = partial(Result, area=AREA)


def subnet(id_: str) -> Callable[[Context], Iterator[Result]]:
    """Return the check of one adopted subnet."""
    return partial(_subnet, id_)


def _subnet(id_: str, context: Context) -> Iterator[Result]:
    network = context.fleet.network
    try:
        subnet = context.subnets().get(id_)
    except NotFound as error:  # EC2 names the first that is not there, and answers for none
        yield _result(status="fail", subject=id_, message=str(error), fix="network.existing.subnets of the stack file")
        return
    if subnet is None:
        yield _result(status="fail", subject=id_, message=f"the subnet does not exist in {context.fleet.region}",
                      fix="network.existing.subnets of the stack file")  # fmt: skip
        return
    if isinstance(network, ExistingNetwork) and subnet["VpcId"] != network.existing.vpc:
        message = f"it is in {subnet['VpcId']}, not in {network.existing.vpc}"
        yield _result(status="fail", subject=id_, message=message, fix=f"network.existing.vpc: {subnet['VpcId']}")
        return
    cni, how = _cni(context)
    (need,) = (each for each in addresses.subnets(context.fleet, cni) if each.zone == id_)
    free = int(subnet["AvailableIpAddressCount"])
    amounts = tuple(
        Amount(name=name, value=value, unit="address", source=source, as_of=context.today.isoformat())
        for name, value, source in (
            ("free", free, "ec2:DescribeSubnets"), ("need", need.need, "plan"), ("update", need.updating, "plan"),
        )
    )  # fmt: skip
    message = f"{free} addresses are free in {subnet['AvailabilityZone']}, {need.need} are needed at most{how}"
    if free >= need.need + need.updating:
        yield _result(status="pass", subject=id_, message=message, amounts=amounts)
        return
    running = len(context.nodes())
    message += f", and {need.updating} more while an update starts new nodes before it stops old ones"
    if running:
        message += f"; {running} nodes of this fleet run already and have theirs"
    yield _result(
        status="warn" if running or free >= need.need else "fail", subject=id_, message=message, amounts=amounts,
        fix="smaller pools.<name>.nodes.max, or larger subnets in network.existing.subnets",
    )  # fmt: skip


def _cni(context: Context) -> tuple[addresses.Cni, str]:
    """Return how nodes take addresses, and what is to be said of it. An adopted cluster's CNI has its own settings."""
    if not isinstance(context.fleet.cluster, ExistingCluster):
        return addresses.DEFAULT_CNI, ""
    name = context.fleet.cluster_name
    try:
        cni = context.shared.get("cni", lambda: read_cni(context.aws, name))
    except Unavailable as error:
        lacking = f" for lack of {error.permission}" if error.permission else f": {error}"
        return addresses.DEFAULT_CNI, f" (by the CNI's defaults; its settings are unknown{lacking})"
    return cni, " (in prefixes of 16 that must be whole, as its CNI takes them)" if cni.prefixes else ""


def names(context: Context) -> Iterator[Result]:
    """Check that an adopted VPC gives names: nodes find the API server and endpoints by them."""
    network = context.fleet.network
    if not isinstance(network, ExistingNetwork):
        return
    vpc = network.existing.vpc
    try:
        off = [name for name, on in read_names(context.aws, vpc).items() if not on]
    except NotFound as error:
        yield _result(status="fail", subject=vpc, message=str(error), fix="network.existing.vpc of the stack file")
        return
    if not off:
        yield _result(status="pass", subject=vpc, message="it gives names to what is in it")
        return
    message = f"{' and '.join(off)} of it is off: nodes find neither the API server in the VPC nor endpoints by name"
    command = f"aws ec2 modify-vpc-attribute --region {context.fleet.region} --vpc-id {vpc}"
    flags = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}
    fix = " && ".join(f"{command} {flags[name]}" for name in off)
    yield _result(status="fail", subject=vpc, message=message, fix=fix)


def zones(context: Context) -> Iterator[Result]:
    """Check that EKS can put a control plane into the zones of adopted subnets. Raises Unavailable, NotFound."""
    subnets = context.subnets().values()
    there = {str(subnet["AvailabilityZone"]) for subnet in subnets}
    barred = [str(subnet["SubnetId"]) for subnet in subnets if subnet.get("AvailabilityZoneId") in _BARRED]
    least = limit("eks.control-plane-zones")
    result = partial(_result, subject=ZONES)
    if barred:
        message = f"{', '.join(barred)} is in a zone in which EKS puts no control plane"
        yield result(status="fail", message=message, fix="subnets of other zones in network.existing.subnets")
    elif len(there) < least:
        message = f"all are in {', '.join(sorted(there))}, and a control plane takes {least} zones"
        yield result(status="fail", message=message, fix="a subnet of another zone in network.existing.subnets")
    else:
        yield result(status="pass", message=f"in {', '.join(sorted(there))}")


def ways_out_of_subnets(context: Context) -> Iterator[Result]:
    """Check that adopted subnets have a way to all that the parts of the fleet call."""
    network, subnets = context.fleet.network, context.subnets()
    if not isinstance(network, ExistingNetwork):
        return
    there = read_ways_out(context.aws, context.fleet.region, network.existing.vpc, subnets)
    closed = sorted(subnets.keys() - there.internet)
    subject = "ways out"
    if not closed:
        yield _result(status="pass", subject=subject, message=f"{len(subnets)} subnets have a default route")
        return
    services = there.services | ({"s3"} if there.s3.issuperset(closed) else set())
    lacking: dict[str, list[str]] = {}
    for way in ways_out.of(context.fleet):
        called = () if way.optional else (*way.endpoints, *(["s3"] if "ecr.dkr" in way.endpoints else ()))
        for service in (service for service in called if service not in services):
            lacking.setdefault(service, []).append(way.what)
    hosts = [way.what for way in ways_out.of(context.fleet) if way.hosts]
    where = f"{', '.join(closed)} without a default route"
    needs = [f"{service} ({', '.join(parts)})" for service, parts in lacking.items()]
    message = f"{where}: what needs the internet ({', '.join(hosts)}) has a way by a proxy or a mirror at most"
    if needs:
        message = f"{where} or an endpoint of {', '.join(needs)}; {message.partition(': ')[2]}"
    endpoint = f"aws ec2 create-vpc-endpoint --vpc-id {network.existing.vpc} for each service, or " if needs else ""
    fix = f"{endpoint}a default route to a NAT gateway; docs/private-networks.md"
    yield _result(status="warn", subject=subject, message=message, fix=fix)


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
        message = "the Kubernetes API answers only inside the VPC: run pulumi up there"
        yield _result(status="warn", subject=key, message=message, fix=f"a machine in the VPC, or {key}")
        return
    networks = [IPv4Network(cidr) for cidr in cluster.endpoint.cidrs]
    if examples := [str(cidr) for cidr in networks if any(map(cidr.subnet_of, DOCUMENTATION))]:
        message = f"{', '.join(examples)} come from an example and are not in use anywhere"
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
    message = f"this machine's {own} is in none of {listed}: pulumi up from here fails at the first chart"
    yield _result(status="warn", subject=key, message=message, fix=f"add {own} to {key}, or run it where {key} says")
