"""Cluster on AWS as its user asks for it, checked against the catalogue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.errors import did_you_mean
from paddock.slurm.errors import SlurmInputError

_SUBNET = re.compile(r"subnet-[0-9a-f]{8}(?:[0-9a-f]{9})?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
_MOST_NODES = 1000
"""Nodes that a queue may be given here; ParallelCluster's own limit is 2,000 for all queues."""
_MOST_RESOURCES = 50
"""Compute resources that ParallelCluster takes for all queues together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """A cluster: the nodes' instance types, at most `max_nodes` of each, in these subnets."""

    name: str
    region: str
    head: InstanceType
    head_subnet: str
    subnets: tuple[str, ...]
    instances: tuple[InstanceType, ...]
    max_nodes: int
    spot: bool
    key: str = ""


def request(
    *,
    name: str,
    region: str,
    instances: Sequence[str],
    subnets: Sequence[str],
    head: str = "m7i.large",
    head_subnet: str = "",
    max_nodes: int = 4,
    spot: bool = True,
    key: str = "",
) -> ClusterRequest:
    """Check the values of the flags. Raises SlurmInputError for the first that is wrong."""
    if not _NAME.fullmatch(name):
        raise SlurmInputError(f"--name {name!r}\n    expected: a letter, then letters, digits and dashes, at most 60")
    if region not in catalog.regions():
        raise SlurmInputError(
            f"--region {region!r}\n    expected: a region of AWS, such as us-east-1"
            f"\n    fix: {did_you_mean(region, catalog.regions(), 'aws ec2 describe-regions lists them')}"
        )
    for flag, values in (("subnets", subnets), ("head-subnet", [head_subnet] if head_subnet else [])):
        for value in values:
            if not _SUBNET.fullmatch(value):
                raise SlurmInputError(
                    f"--{flag} {value!r}\n    expected: an id such as subnet-0123456789abcdef0"
                    "\n    fix: aws ec2 describe-subnets lists them; `pulumi stack output` does for a fleet's"
                )
    if not subnets:
        raise SlurmInputError("--subnets is missing\n    expected: the subnets of the nodes, such as subnet-0a1b2c3d")
    if not 1 <= max_nodes <= _MOST_NODES:
        raise SlurmInputError(f"--max {max_nodes}\n    expected: 1 to {_MOST_NODES} nodes of each instance type")
    if not instances:
        raise SlurmInputError("--instances is missing\n    expected: instance types, such as g5.xlarge,g6e.2xlarge")
    types = tuple(_instance("instances", value) for value in dict.fromkeys(instances))
    if len(types) > _MOST_RESOURCES:
        raise SlurmInputError(f"--instances names {len(types)} types\n    expected: at most {_MOST_RESOURCES}")
    fractions = [kind.name for kind in types if kind.gpu and kind.gpu_fraction < 1]
    if fractions:
        raise SlurmInputError(
            f"--instances {fractions[0]} has a fraction of a GPU, and EC2 reports none: Slurm would count 0"
            "\n    expected: types with whole GPUs\n    fix: a larger size of its family"
        )
    return ClusterRequest(
        name=name, region=region, head=_instance("head", head), head_subnet=head_subnet or subnets[0],
        subnets=tuple(dict.fromkeys(subnets)), instances=types, max_nodes=max_nodes, spot=spot, key=key,
    )  # fmt: skip


def _instance(flag: str, name: str) -> InstanceType:
    try:
        return catalog.instance(name)
    except catalog.UnknownInstanceType as unknown:
        near = f"did you mean {unknown.suggestions[0]}?" if unknown.suggestions else "catalog.instances lists them"
        raise SlurmInputError(
            f"--{flag} {name!r} is no instance type of the catalogue\n    expected: one such as g5.xlarge"
            f"\n    fix: {near}"
        ) from None
