"""Cluster on AWS as its user asks for it, checked against the catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.console.parameters import Parameters, parameter
from paddock.errors import did_you_mean
from paddock.slurm.errors import SlurmInputError

_SUBNET = re.compile(r"subnet-[0-9a-f]{8}(?:[0-9a-f]{9})?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,59}")
_MOST_NODES = 1000
"""Nodes that a queue may be given here; ParallelCluster's own limit is 2,000 for all queues."""
_MOST_RESOURCES = 50
"""Compute resources that ParallelCluster takes for all queues together."""


@dataclass(frozen=True, kw_only=True)
class Cloud(Parameters):
    """Parameters of `slurm.cloud`."""

    instances: tuple[str, ...] = parameter(..., "instance types of the nodes, such as g5.xlarge,g6e.2xlarge,m7i.large")
    subnets: tuple[str, ...] = parameter(..., "subnets of the nodes; one keeps the nodes of a job near each other")
    region: str = parameter("us-east-1", "region of AWS")
    name: str = parameter("paddock", "name of the cluster")
    max: int = parameter(4, "most nodes of each instance type")
    on_demand: bool = parameter(False, "on-demand nodes instead of spot ones")
    head: str = parameter("m7i.large", "instance type of the head node, which runs all the time")
    head_subnet: str = parameter("", "subnet of the head node, by default the first of SUBNETS")
    key: str = parameter("", "EC2 key pair for SSH to the head node; without one Systems Manager opens a shell")
    output: Path | None = parameter(None, "folder of cluster.yaml, by default the current one")
    dry_run: bool = parameter(False, "print the file, and write nothing")

    @property
    def types(self) -> tuple[InstanceType, ...]:
        """Return the nodes' types. Raises SlurmInputError."""
        return tuple(_instance("instances", value) for value in dict.fromkeys(self.instances))

    @property
    def head_type(self) -> InstanceType:
        return _instance("head", self.head)

    @property
    def spot(self) -> bool:
        return not self.on_demand


def check(cloud: Cloud) -> None:
    """Raise SlurmInputError for the first value that is wrong."""
    if not _NAME.fullmatch(cloud.name):
        raise SlurmInputError(
            f"--name {cloud.name!r}\n    expected: a letter, then letters, digits and dashes, at most 60"
        )
    if cloud.region not in catalog.regions():
        raise SlurmInputError(
            f"--region {cloud.region!r}\n    expected: a region of AWS, such as us-east-1"
            f"\n    fix: {did_you_mean(cloud.region, catalog.regions(), 'aws ec2 describe-regions lists them')}"
        )
    for flag, values in (("subnets", cloud.subnets), ("head-subnet", [cloud.head_subnet] if cloud.head_subnet else [])):
        for value in values:
            if not _SUBNET.fullmatch(value):
                raise SlurmInputError(
                    f"--{flag} {value!r}\n    expected: an id such as subnet-0123456789abcdef0"
                    "\n    fix: aws ec2 describe-subnets lists them; `pulumi stack output` does for a fleet's"
                )
    if not cloud.subnets:
        raise SlurmInputError("--subnets is missing\n    expected: the subnets of the nodes, such as subnet-0a1b2c3d")
    if not 1 <= cloud.max <= _MOST_NODES:
        raise SlurmInputError(f"--max {cloud.max}\n    expected: 1 to {_MOST_NODES} nodes of each instance type")
    if not cloud.instances:
        raise SlurmInputError("--instances is missing\n    expected: instance types, such as g5.xlarge,g6e.2xlarge")
    types = cloud.types
    _instance("head", cloud.head)
    if len(types) > _MOST_RESOURCES:
        raise SlurmInputError(f"--instances names {len(types)} types\n    expected: at most {_MOST_RESOURCES}")
    fractions = [kind.name for kind in types if kind.gpu and kind.gpu_fraction < 1]
    if fractions:
        raise SlurmInputError(
            f"--instances {fractions[0]} has a fraction of a GPU, and EC2 reports none: Slurm would count 0"
            "\n    expected: types with whole GPUs\n    fix: a larger size of its family"
        )


def _instance(flag: str, name: str) -> InstanceType:
    try:
        return catalog.instance(name)
    except catalog.UnknownInstanceType as unknown:
        near = f"did you mean {unknown.suggestions[0]}?" if unknown.suggestions else "`catalog` lists them"
        raise SlurmInputError(
            f"--{flag} {name!r} is not an instance type in the catalogue\n    expected: one such as g5.xlarge"
            f"\n    fix: {near}"
        ) from None
