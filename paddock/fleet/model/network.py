"""The VPC: made here, or adopted."""

from __future__ import annotations

from ipaddress import IPv4Network
from string import ascii_lowercase
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from paddock import catalog
from paddock.fleet.model.base import Cidr, Distinct, Matching, Model, RetentionDays, form

InterfaceEndpoint = Literal[
    "ecr.api", "ecr.dkr", "sts", "logs", "ec2", "eks", "eks-auth", "autoscaling", "ssm", "ssmmessages", "ec2messages",
    "imagebuilder",
]  # fmt: skip
Zone = Annotated[str, Matching(r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$", "a zone name, such as us-west-2a")]


def _not_s3(name: Any) -> Any:
    if name == "s3":
        fix = "leave s3 out: its gateway endpoint is always made, and free"
        text = {"expected": f"one of {', '.join(get_args(InterfaceEndpoint))}", "fix": fix}
        raise PydanticCustomError("text", "not one of the choices", text)
    return name


Zones = Annotated[
    Annotated[int, Field(ge=2, le=6), Tag("<count>")]
    | Annotated[tuple[Zone, ...], Field(min_length=2, max_length=6), Distinct(), Tag("<names>")],
    Discriminator(lambda value: "<names>" if isinstance(value, list | tuple) else "<count>"),
]


PRIVATE_RANGES = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""RFC 1918 and RFC 6598: VPCs with their peers, networks on premises, pods and services."""


class Egress(Model):
    """Private networks that jobs may reach. The internet is open to them, every other private address is shut."""

    allow: Annotated[tuple[Cidr, ...], Distinct()] = ()
    """Networks on all ports, such as a cache in the VPC or a server on premises; none by default."""


class NewNetwork(Model):
    """A VPC of the fleet's own: private subnets for nodes, public ones only for NAT gateways."""

    cidr: Cidr = "10.0.0.0/16"
    """IPv4 range of the VPC, /16 to /22."""
    zones: Zones = 3
    """Availability zones: how many (the first that every account has), or which."""
    private_subnets: Annotated[tuple[Cidr, ...], Distinct()] = ()
    """One range a zone, for nodes and pods; by default a quarter of the VPC, from the fourth zone on a sixteenth."""
    public_subnets: Annotated[tuple[Cidr, ...], Distinct()] = ()
    """One range a zone, for NAT gateways; by default a /26 or /28 each at the end of the VPC."""
    nat: Literal["single", "per-zone", "none"] = "single"
    """`single`: one gateway, cheapest, lost with its zone. `per-zone`: survives a zone. `none`: no way out."""
    endpoints: Annotated[tuple[Annotated[InterfaceEndpoint, BeforeValidator(_not_s3)], ...], Distinct()] = ()
    """Interface endpoints, each about 7 USD a month and zone: the ways to services of AWS where `nat` is `none`, when a
    plan says which part needs which. The S3 gateway endpoint is free and always made."""
    flow_log_days: RetentionDays = 365
    """Days that VPC flow logs are kept."""
    egress: Egress = Egress()
    """Private networks that jobs may reach; also where a kubeconfig names the cluster and no VPC is made."""

    def zone_names(self, region: str) -> tuple[str, ...]:
        """Names of the zones. Counting needs no look-up, so a plan is the same on every machine."""
        if not isinstance(self.zones, int):
            return self.zones
        letters = catalog.regions().get(region) or "abcdef"
        return tuple(f"{region}{letter}" for letter in letters[: self.zones])

    @property
    def zone_count(self) -> int:
        return self.zones if isinstance(self.zones, int) else len(self.zones)

    @property
    def slots(self) -> tuple[int, ...]:
        """Places of the zones in the layout."""
        return tuple(range(self.zones)) if isinstance(self.zones, int) else tuple(map(_slot, self.zones))

    @property
    def room(self) -> int:
        """Zones that the layout has a place for."""
        return _LARGE_SLOTS if IPv4Network(self.cidr).prefixlen > 21 else 2 * _LARGE_SLOTS

    def subnets(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(private, public) ranges, one of each per zone, where the layout has room for it.

        A range depends on the VPC and its own zone alone: subnets that moved when another zone comes or goes would be
        created where the old ones still are, which EC2 refuses. Three zones, the most that many regions have, get a
        quarter of the VPC each. The last quarter holds three more, and the public ranges at its end.
        """
        vpc = IPv4Network(self.cidr)
        private = self.private_subnets or tuple(_private(vpc, slot) for slot in self.slots)
        public = self.public_subnets or tuple(_public(vpc, slot) for slot in self.slots)
        return private, public


_LARGE_SLOTS = 3
"""Zones with a quarter of the VPC."""


def _slot(zone: str) -> int:
    """Return the place of a zone's letter in its region; letters that not every account has come last."""
    letters = catalog.regions().get(zone[:-1]) or ""
    return (letters + "".join(sorted(set(ascii_lowercase) - set(letters)))).index(zone[-1])


def _private(vpc: IPv4Network, slot: int) -> str:
    if slot < _LARGE_SLOTS:
        return _part(vpc, vpc.prefixlen + 2, slot)
    prefixlen = vpc.prefixlen + 4 if vpc.prefixlen < 21 else 26  # a /21 has no room for more before the public ranges
    return _part(vpc, prefixlen, 3 * 2 ** (prefixlen - vpc.prefixlen - 2) + slot - _LARGE_SLOTS)


def _public(vpc: IPv4Network, slot: int) -> str:
    """Return a /26 at the very end, for the smaller zones a /28 before those: either holds a NAT gateway."""
    return _part(vpc, 26, slot - 3) if slot < _LARGE_SLOTS else _part(vpc, 28, -10 - slot)


def _part(vpc: IPv4Network, prefixlen: int, index: int) -> str:
    """Return a range of the VPC, counted from its start, or with a negative number from its end.

    Reckoned, because `IPv4Network.subnets` of a /16 makes a thousand objects to pick three.
    """
    size = 2 ** (32 - prefixlen)
    return str(IPv4Network((int(vpc[0]) + index * size + (vpc.num_addresses if index < 0 else 0), prefixlen)))


class AdoptedNetwork(Model):
    """A VPC that is already there."""

    vpc: Annotated[str, Matching(r"^vpc-[0-9a-f]{8,17}$", "a VPC ID: vpc-...")]
    """ID of the VPC."""
    subnets: Annotated[
        tuple[Annotated[str, Matching(r"^subnet-[0-9a-f]{8,17}$", "a subnet ID: subnet-...")], ...],
        Field(min_length=2),
        Distinct(),
    ]
    """Private subnets for nodes, in two zones at least (EKS asks for that)."""


class ExistingNetwork(Model):
    """Adopt a VPC and its subnets instead of making them."""

    existing: AdoptedNetwork
    """The VPC and its private subnets."""
    egress: Egress = Egress()
    """Private networks that jobs may reach, parts of the VPC included."""


Network = Annotated[
    Annotated[ExistingNetwork, Tag("<existing>")] | Annotated[NewNetwork, Tag("<new>")],
    form("existing", default="new"),
]
