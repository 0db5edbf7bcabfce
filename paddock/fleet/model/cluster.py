"""The Kubernetes cluster: made here, an EKS cluster that is already there, or any that a kubeconfig reaches."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, WithJsonSchema

from paddock.catalog.limits import limit
from paddock.fleet.model.base import (
    Cidr,
    Distinct,
    Matching,
    Model,
    RetentionDays,
    Version,
    discriminator,
    form,
    mistake,
    refuse,
)
from paddock.fleet.model.network import Zone
from paddock.fleet.model.quantity import Delay, Memory
from paddock.fleet.model.shared_cluster import Arc, Crds

KUBERNETES = "1.36"
"""Newest minor in EKS's standard support that the catalogue knows; a stack that names none has it."""

Allow = Annotated[
    Annotated[Literal["any"], Tag("<word>")]
    | Annotated[tuple[Cidr, ...], Field(max_length=limit("eks.public-access-networks")), Distinct(), Tag("<networks>")],
    discriminator(
        lambda value: "<networks>" if isinstance(value, list | tuple) else "<word>" if value == "any" else None,
        "not a list of networks; write any, or a list of networks: [203.0.113.0/24]",
    ),
]


class Endpoint(Model):
    """Access to the Kubernetes API. The private endpoint is always on."""

    allow: Allow = ()
    """Networks that may use the public endpoint; none switches it off; `any` opens it to the world. IPv4."""

    @property
    def public(self) -> bool:
        return bool(self.allow)

    @property
    def cidrs(self) -> tuple[str, ...]:
        return ("0.0.0.0/0",) if self.allow == "any" else tuple(self.allow)


_PRINCIPAL = r"^arn:aws[a-z-]*:iam::\d{12}:(root|(user|role)/[\w+=,.@/-]{1,512})$"
_SESSION = re.compile(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([\w+=,.@-]+)/.*", re.ASCII)


def _principal(arn: str) -> str:
    if re.search(_PRINCIPAL, arn, re.ASCII) and not arn.endswith("\n"):
        return arn
    expected, fix = "the ARN of an IAM role or user: arn:aws:iam::123456789012:role/NAME", ""
    message = f'"{arn}" is not a principal that EKS can let in'
    if session := _SESSION.fullmatch(arn):
        partition, account, role = session.groups()
        message = f'"{arn}" is a session, which expires; EKS lets in the role behind it'
        fix = f"write arn:{partition}:iam::{account}:role/{role}, with the role's path where it has one"
    elif re.search(r"[*?]", arn):
        fix = "write an entry for each role: EKS accepts no wildcards here"
    elif not re.match(r"arn:aws[a-z-]*:(iam|sts):", arn):
        fix = "aws iam list-roles shows those of the account"
    refuse([mistake(message, (), expected, fix)])
    return arn


def same_principal(one: str, other: str) -> bool:
    """Return whether two ARNs mean one user or role: IAM has a name once in an account, whatever its path."""
    return _without_path(one) == _without_path(other)


def _without_path(arn: str) -> tuple[str, str]:
    """Return what an ARN says before a path, and the name behind it."""
    owner, _, path = arn.partition("/")
    return owner, path.rpartition("/")[2]


Principal = Annotated[
    str, AfterValidator(_principal), WithJsonSchema({"type": "string", "pattern": _PRINCIPAL, "maxLength": 600})
]
AccessName = Annotated[
    str,
    Matching(r"^[A-Za-z0-9]([\w.@+-]*[A-Za-z0-9])?$", "letters, digits and . _ @ + -, such as platform", 63),
]


NamespacePattern = Annotated[
    str, Matching(r"^[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?$", "a namespace, such as ci or ci-*", 63)
]


class Access(Model):
    """An EKS access entry: who may do what in the cluster."""

    principal: Principal
    """ARN of an IAM role or user. Each may have one entry."""
    policy: Literal["cluster-admin", "admin", "edit", "view"] = "view"
    """EKS access policy of that name; `cluster-admin` may do everything."""
    namespaces: Annotated[tuple[NamespacePattern, ...], Distinct()] = ()
    """Namespaces the policy holds in; none means the whole cluster."""

    @property
    def may_deploy(self) -> bool:
        """True for an administrator of the whole cluster, which `pulumi up` has to be."""
        return self.policy == "cluster-admin" and not self.namespaces


class Scale(Model):
    """Number of nodes."""

    min: Annotated[int, Field(ge=0)] = 0
    """Nodes kept at all times."""
    max: Annotated[int, Field(ge=1)]
    """Nodes bought at most."""


class SystemNodes(Model):
    """On-demand nodes without GPUs for what must not be lost to a spot interruption: CoreDNS, ARC, listeners."""

    instances: Annotated[tuple[str, ...], Field(min_length=1), Distinct()] = ("m7i.large", "m6i.large")
    """Types without a GPU, best first."""
    nodes: Scale = Scale(min=2, max=4)
    """How many; two survive the loss of one."""
    disk: Memory = 50 * 1024
    """Root volume."""


class NewCluster(Model):
    """An EKS cluster of the fleet's own."""

    version: Version = KUBERNETES
    """Kubernetes minor, quoted: "1.36"."""
    support: Literal["standard", "extended"] = "standard"
    """`extended` keeps a version past its standard support, at six times the price."""
    endpoint: Endpoint = Endpoint()
    """Access to the Kubernetes API from outside the VPC; by default nobody has it."""
    access: dict[AccessName, Access] = {}
    """Access entries by name. Where none is `cluster-admin` for the whole cluster, who runs `pulumi up` first is made
    one; else who runs it has to be in the list, as `cluster-admin`."""
    service_cidr: Cidr = "172.20.0.0/16"
    """Range of Kubernetes service addresses; may not overlap the VPC."""
    zones: Annotated[tuple[Zone, ...], Distinct()] = ()
    """Zones of the control plane, two or more; by default all of the network's. EKS never changes them, so a zone that
    the network gets later stays out of these, and holds nodes alone."""
    system: SystemNodes = SystemNodes()
    """Nodes for everything that is not a job."""
    scale_down_delay: Delay = 10
    """Time that an empty node is kept for the next job, 1m to 24h: longer starts jobs sooner, and is paid for."""
    metrics_server: bool = True
    """Install EKS's metrics-server add-on, which `kubectl top` and horizontal pod autoscalers read. A cluster that is
    not made here keeps its own."""
    log_days: RetentionDays = 365
    """Days that control-plane logs are kept."""
    deletion_protection: bool = True
    """EKS refuses to delete the cluster while this is on."""
    arc: Arc = Arc()
    """Actions Runner Controller, where others have theirs."""
    crds: Crds = Crds()
    """CRDs that others may have installed."""


class ExistingCluster(Model):
    """An EKS cluster that is already there. Paddock adds GPU pools, add-ons for them and runners."""

    existing: Annotated[str, Matching(r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$", "the name of an EKS cluster")]
    """Name of the cluster, in this stack's region and account."""
    version: Version = KUBERNETES
    """Kubernetes minor it runs."""
    support: Literal["standard", "extended"] = "standard"
    """Its upgrade policy: past standard support EKS upgrades it by itself, or with `extended` charges six times the
    price."""
    scale_down_delay: Delay = 10
    """Time that an empty node is kept for the next job, 1m to 24h: longer starts jobs sooner, and is paid for."""
    present: Annotated[tuple[Literal["aws-ebs-csi-driver"], ...], Distinct()] = ()
    """Add-ons that the cluster has and Paddock would make: they are used, and neither changed nor removed."""
    arc: Arc = Arc()
    """Actions Runner Controller, where others have theirs."""
    crds: Crds = Crds()
    """CRDs that others may have installed."""
    device_plugin: Literal["own", "theirs"] = "own"
    """`theirs` installs no NVIDIA device plugin: the one that is there (GPU Operator's, for one) serves the GPU nodes.
    Two on a node would both claim its GPUs."""


class KubeconfigCluster(Model):
    """Any cluster a kubeconfig reaches. GPU nodes are there already; Paddock adds device plugin, ARC, runners."""

    kubeconfig: Annotated[str, Matching(r"^\S(.*\S)?$", "the path of a kubeconfig file", 4096)]
    """Path of the kubeconfig file."""
    context: Annotated[str, Matching(r"^\S(.*\S)?$", "the name of a context in the kubeconfig")] | None = None
    """Context in it; by default the current one."""
    version: Version = KUBERNETES
    """Kubernetes minor it runs."""
    support: Literal["standard", "extended"] = "standard"
    """Of no effect: the cluster is not necessarily EKS's."""
    arc: Arc = Arc()
    """Actions Runner Controller, where others have theirs."""
    crds: Crds = Crds()
    """CRDs that others may have installed."""
    device_plugin: Literal["own", "theirs"] = "own"
    """`theirs` installs no NVIDIA device plugin: the one that is there (GPU Operator's, for one) serves the GPU nodes.
    Two on a node would both claim its GPUs."""


Cluster = Annotated[
    Annotated[ExistingCluster, Tag("<existing>")]
    | Annotated[KubeconfigCluster, Tag("<kubeconfig>")]
    | Annotated[NewCluster, Tag("<new>")],
    form("existing", "kubeconfig", default="new"),
]
