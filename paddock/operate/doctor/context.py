"""State that the checks of one examination share: the stack, the readers, and answers that several of them need."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from paddock import catalog
from paddock.fleet import ExistingNetwork, Fleet, NewNetwork, Stack
from paddock.operate.inventory import access, eks
from paddock.operate.sources.aws import AwsReader, NoCredentials, answered_at
from paddock.operate.sources.programs import pulumi_state
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.pulumi_cli.stack import Resource as Held

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """Account and principal of the credentials, with AWS's clock and this machine's when it answered."""

    account: str
    arn: str
    aws_clock: datetime | None
    own_clock: datetime


@dataclass(frozen=True, slots=True)
class Node:
    """An instance of the fleet that runs or starts."""

    type: str
    spot: bool

    @property
    def family(self) -> str:
        return self.type.partition(".")[0]

    @property
    def vcpus(self) -> int | None:
        known = catalog.instances().get(self.type)
        return known.vcpus if known else None


class Shared:
    """Answers by key: the first thread that needs one reads it, the others wait. Errors are shared, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[str, Future[Any]] = {}

    def get(self, key: str, read: Callable[[], T]) -> T:
        with self._lock:
            future, first = self._futures.get(key), key not in self._futures
            if future is None:
                future = self._futures[key] = Future()
        if first:
            try:
                future.set_result(read())
            except BaseException as error:  # also a defect is the answer of those who wait
                future.set_exception(error)
        result: T = future.result()
        return result


@dataclass(frozen=True, slots=True)
class Context:
    """One examination. Methods may be called by several threads at a time."""

    root: Path
    stack: Stack
    today: date
    reader: AwsReader
    github_key: str = field(default="", repr=False)
    """The App's private key, or a token, where the caller has it at hand."""
    shared: Shared = field(default_factory=Shared, repr=False)

    @property
    def fleet(self) -> Fleet:
        return self.stack.fleet

    @property
    def aws(self) -> AwsReader:
        """Reader of AWS. Raises NoCredentials, so that no check waits for what AWS refuses anyway."""
        try:
            self.identity()
        except NoCredentials:
            raise
        except Unavailable:
            pass  # the one service that says whose credentials these are may be down alone
        return self.reader

    def identity(self) -> Identity:
        """Return whose credentials these are. Raises Unavailable, NoCredentials."""
        return self.shared.get("identity", self._identity)

    def _identity(self) -> Identity:
        answer = self.reader.read("sts", "get_caller_identity")
        return Identity(answer["Account"], answer["Arn"], answered_at(answer), datetime.now(UTC))

    def deployer(self) -> access.Principal:
        """Return the role or user that the credentials are of. Raises Unavailable, NotFound."""
        return self.shared.get("deployer", lambda: access.read_principal(self.aws, self.identity().arn))

    def cluster(self) -> eks.Cluster | None:
        """Return the EKS cluster of the fleet's name, None where there is none. Raises Unavailable."""
        return self.shared.get("cluster", lambda: eks.read_cluster(self.aws, self.fleet.cluster_name))

    def state(self) -> tuple[Held, ...]:
        """Return what the stack made until now, by Pulumi's state. Raises Unavailable."""
        return self.shared.get("state", lambda: pulumi_state(self.root, self.stack.name))

    def nodes(self) -> tuple[Node, ...]:
        """Return the fleet's own instances. Raises Unavailable."""
        return self.shared.get("nodes", self._nodes)

    def _nodes(self) -> tuple[Node, ...]:
        filters = [
            {"Name": "tag:paddock:fleet", "Values": [self.fleet.name]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        groups = self.aws.pages("ec2", "describe_instances", "Reservations", Filters=filters)
        return tuple(
            Node(instance["InstanceType"], instance.get("InstanceLifecycle") == "spot")
            for group in groups
            for instance in group["Instances"]
        )

    def subnets(self) -> dict[str, dict[str, Any]]:
        """Return the subnets of an adopted network by id. Raises Unavailable, NotFound."""
        return self.shared.get("subnets", self._subnets)

    def _subnets(self) -> dict[str, dict[str, Any]]:
        network = self.fleet.network
        if not isinstance(network, ExistingNetwork):
            return {}
        ids = list(network.existing.subnets)
        return {s["SubnetId"]: s for s in self.aws.pages("ec2", "describe_subnets", "Subnets", SubnetIds=ids)}

    def zones(self) -> tuple[str, ...]:
        """Return the zones that nodes may be in. Raises Unavailable where only AWS knows them and does not answer."""
        network = self.fleet.network
        if isinstance(network, NewNetwork):
            return network.zone_names(self.fleet.region)
        return tuple(sorted({subnet["AvailabilityZone"] for subnet in self.subnets().values()}))

    def first_zone(self) -> str:
        """Return the zone of the first private subnet. Raises Unavailable, NotFound."""
        network = self.fleet.network
        if isinstance(network, NewNetwork):
            return network.zone_names(self.fleet.region)[0]
        id_ = network.existing.subnets[0]
        if subnet := self.subnets().get(id_):
            return str(subnet["AvailabilityZone"])
        raise NotFound(f"{id_} does not exist in {self.fleet.region}", "network.existing.subnets of the stack file")

    def graph(self) -> Graph:
        """Return the resources of the stack."""
        return self.shared.get("graph", lambda: plan_graph(self.stack))

    @property
    def uses_aws(self) -> bool:
        """True if the stack makes anything in AWS."""
        return self.makes_cluster_parts or self.fleet.holds("images")

    @property
    def makes_cluster_parts(self) -> bool:
        """True if the stack buys nodes."""
        return self.fleet.owns_nodes and self.fleet.holds("cluster")
