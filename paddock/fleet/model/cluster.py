"""The Kubernetes cluster: made here, an EKS cluster that is already there, or any that a kubeconfig reaches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from paddock.fleet.model.base import Arn, Cidr, Matching, Model, RetentionDays, Version, form
from paddock.fleet.model.quantity import Memory

Allow = Annotated[
    Annotated[Literal["any"], Tag("<word>")] | Annotated[tuple[Cidr, ...], Tag("<networks>")],
    Discriminator(
        lambda value: "<networks>" if isinstance(value, list | tuple) else "<word>" if value == "any" else None,
        custom_error_type="form",
        custom_error_message="not who may reach the Kubernetes API; write any, or a list of networks: [203.0.113.0/24]",
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


class Access(Model):
    """An EKS access entry: who may do what in the cluster."""

    principal: Arn
    """ARN of an IAM role or user."""
    policy: Literal["cluster-admin", "admin", "edit", "view"] = "view"
    """EKS access policy of that name; `cluster-admin` may do everything."""
    namespaces: tuple[str, ...] = ()
    """Namespaces the policy holds in; none means the whole cluster."""


class Scale(Model):
    """Number of nodes."""

    min: Annotated[int, Field(ge=0)] = 0
    """Nodes kept at all times."""
    max: Annotated[int, Field(ge=1)]
    """Nodes bought at most."""


class SystemNodes(Model):
    """On-demand nodes without GPUs for what must not be lost to a spot interruption: CoreDNS, ARC, listeners."""

    instances: Annotated[tuple[str, ...], Field(min_length=1)] = ("m7i.large", "m6i.large")
    """Types without a GPU, best first."""
    nodes: Scale = Scale(min=2, max=4)
    """How many; two survive the loss of one."""
    disk: Memory = 50 * 1024
    """Root volume."""


class NewCluster(Model):
    """An EKS cluster of the fleet's own."""

    version: Version = "1.35"
    """Kubernetes minor, quoted: "1.35"."""
    support: Literal["standard", "extended"] = "standard"
    """`extended` keeps a version past its standard support, at six times the price."""
    endpoint: Endpoint = Endpoint()
    """Access to the Kubernetes API from outside the VPC; by default nobody has it."""
    access: dict[str, Access] = {}
    """Access entries by name. Whoever runs `pulumi up` gets none by default."""
    service_cidr: Cidr = "172.20.0.0/16"
    """Range of Kubernetes service addresses; may not overlap the VPC."""
    system: SystemNodes = SystemNodes()
    """Nodes for everything that is no job."""
    log_days: RetentionDays = 365
    """Days that control-plane logs are kept."""
    deletion_protection: bool = True
    """EKS refuses to delete the cluster while this is on."""


class ExistingCluster(Model):
    """An EKS cluster that is already there. Paddock adds GPU pools, add-ons for them and runners."""

    existing: Annotated[str, Matching(r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$", "the name of an EKS cluster")]
    """Name of the cluster, in this stack's region and account."""
    version: Version = "1.35"
    """Kubernetes minor it runs."""
    support: Literal["standard", "extended"] = "standard"
    """`extended` accepts a version past its standard support."""


class KubeconfigCluster(Model):
    """Any cluster a kubeconfig reaches. GPU nodes are there already; Paddock adds device plugin, ARC, runners."""

    kubeconfig: Annotated[str, Field(min_length=1)]
    """Path of the kubeconfig file."""
    context: str | None = None
    """Context in it; by default the current one."""
    version: Version = "1.35"
    """Kubernetes minor it runs."""
    support: Literal["standard", "extended"] = "standard"
    """`extended` accepts a version past its standard support."""


Cluster = Annotated[
    Annotated[ExistingCluster, Tag("<existing>")]
    | Annotated[KubeconfigCluster, Tag("<kubeconfig>")]
    | Annotated[NewCluster, Tag("<new>")],
    Discriminator(form("existing", "kubeconfig", default="new")),
]
