"""The VPC: made here, or adopted."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from paddock import catalog
from paddock.fleet.model.base import Cidr, Matching, Model, RetentionDays, form

InterfaceEndpoint = Literal["ecr.api", "ecr.dkr", "sts", "logs", "ec2", "eks", "eks-auth", "autoscaling", "ssm"]
Zone = Annotated[str, Matching(r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$", "a zone name, such as us-west-2a")]


Zones = Annotated[
    Annotated[int, Field(ge=2, le=6), Tag("<count>")]
    | Annotated[tuple[Zone, ...], Field(min_length=2, max_length=6), Tag("<names>")],
    Discriminator(lambda value: "<names>" if isinstance(value, list | tuple) else "<count>"),
]


class NewNetwork(Model):
    """A VPC of the fleet's own: private subnets for nodes, public ones only for NAT gateways."""

    cidr: Cidr = "10.0.0.0/16"
    """IPv4 range of the VPC, /16 to /22."""
    zones: Zones = 3
    """Availability zones: how many (the first that every account has), or which."""
    private_subnets: tuple[Cidr, ...] = ()
    """One range a zone, for nodes and pods; by default the larger part of the VPC, split evenly."""
    public_subnets: tuple[Cidr, ...] = ()
    """One range a zone, for NAT gateways; by default a /26 each at the end of the VPC."""
    nat: Literal["single", "per-zone", "none"] = "single"
    """`single`: one gateway, cheapest, lost with its zone. `per-zone`: survives a zone. `none`: no way out."""
    endpoints: tuple[InterfaceEndpoint, ...] = ()
    """Interface endpoints, each about 7 USD a month and zone. The S3 gateway endpoint is free and always made."""
    flow_log_days: RetentionDays = 365
    """Days that VPC flow logs are kept."""

    def zone_names(self, region: str) -> tuple[str, ...]:
        """Names of the zones. Counting needs no look-up, so a plan is the same on every machine."""
        if not isinstance(self.zones, int):
            return self.zones
        letters = catalog.regions().get(region) or "abcdef"
        return tuple(f"{region}{letter}" for letter in letters[: self.zones])

    @property
    def zone_count(self) -> int:
        return self.zones if isinstance(self.zones, int) else len(self.zones)

    def subnets(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(private, public) ranges, one of each per zone.

        The VPC is cut into eighths (quarters for two or three zones): each zone's nodes get one, and
        the public /26 ranges (/27 where six zones leave too little of a /22) lie at the very end, in a part no zone
        uses. Raises ValueError when the VPC is too small.
        """
        vpc, zones = IPv4Network(self.cidr), self.zone_count
        free = vpc.num_addresses - zones * (vpc.num_addresses // (4 if zones <= 3 else 8))
        private = self.private_subnets or _parts(vpc, vpc.prefixlen + (2 if zones <= 3 else 3), range(zones))
        public = self.public_subnets or _parts(vpc, 26 if zones * 64 <= free else 27, range(-zones, 0))
        return private, public


def _parts(vpc: IPv4Network, prefixlen: int, which: range) -> tuple[str, ...]:
    """Ranges of one size in the VPC, counted from its start, or with negative numbers from its end.

    Reckoned, because `IPv4Network.subnets` of a /16 makes a thousand objects to pick three.
    """
    if prefixlen < vpc.prefixlen or len(which) > 2 ** (prefixlen - vpc.prefixlen):
        raise ValueError(f"{vpc} is too small for {len(which)} ranges of /{prefixlen}")
    size = 2 ** (32 - prefixlen)
    return tuple(str(IPv4Network((int(vpc[0 if i >= 0 else -1]) + i * size + (i < 0), prefixlen))) for i in which)


class AdoptedNetwork(Model):
    """A VPC that is already there."""

    vpc: Annotated[str, Matching(r"^vpc-[0-9a-f]{8,17}$", "a VPC ID: vpc-...")]
    """ID of the VPC."""
    subnets: Annotated[
        tuple[Annotated[str, Matching(r"^subnet-[0-9a-f]{8,17}$", "a subnet ID: subnet-...")], ...], Field(min_length=2)
    ]
    """Private subnets for nodes, in two zones at least (EKS asks for that)."""


class ExistingNetwork(Model):
    """Adopt a VPC and its subnets instead of making them."""

    existing: AdoptedNetwork
    """The VPC and its private subnets."""


Network = Annotated[
    Annotated[ExistingNetwork, Tag("<existing>")] | Annotated[NewNetwork, Tag("<new>")],
    Discriminator(form("existing", default="new")),
]
