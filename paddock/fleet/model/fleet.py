"""The fleet: everything the stack file says. `validation.check` says whether its parts fit together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, wraps
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from pydantic import AfterValidator, Field

from paddock import catalog
from paddock.catalog.limits import limit
from paddock.fleet.model.base import Matching, Model, with_names
from paddock.fleet.model.cluster import Cluster, ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.model.github import GitHub
from paddock.fleet.model.images import Images
from paddock.fleet.model.mirror import Mirror
from paddock.fleet.model.monitoring import CloudWatch, Logs, Monitoring, Prometheus
from paddock.fleet.model.network import Network, NewNetwork
from paddock.fleet.model.pool import Ami, EksManaged, GpuPool
from paddock.fleet.model.runner import SCALE_SET_NAME_MAX, Runner, Volume
from paddock.fleet.model.serving import ServedModel, Serving
from paddock.fleet.model.shared_cluster import Chart, OfCrds

Holder = Annotated[
    str, Matching(r"^(here|none|[\w.-]+(/[\w.-]+){1,2})$", "here, none, or the stack that holds it: ORG/PROJECT/STACK")
]

_NAME = r"^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$"
_NAME_FORM = "lower-case letters, digits and dashes, at most 30 characters"
Name = Annotated[str, Matching(_NAME, _NAME_FORM)]
RunnerKey = Annotated[
    str,
    Matching(
        _NAME,
        _NAME_FORM,
        fix=f"write another key; name: says what GitHub shows, and may have up to {SCALE_SET_NAME_MAX} characters",
    ),
]


class Layers(Model):
    """Parts that this stack holds: `here`, `none`, or the name of the stack that does, as ORG/PROJECT/STACK."""

    images: Holder = "here"
    """ECR repositories, the AMI pipeline, the role that GitHub pushes with."""
    cluster: Holder = "here"
    """Network, Kubernetes cluster, GPU pools and what runs on every node."""
    runners: Holder = "here"
    """Actions Runner Controller and the runner scale sets."""


# IAM's characters, the fewest of any service.
TagKey = Annotated[
    str,
    Matching(
        rf"^(?!aws:)[\w .:/=+@-]{{1,{limit('iam.tag-key')}}}$",
        f"at most {limit('iam.tag-key')} letters, digits, spaces and . : / = + - @ _, no aws: prefix",
    ),
]
TagValue = Annotated[
    str,
    Matching(
        rf"^[\w .:/=+@-]{{0,{limit('iam.tag-value')}}}$",
        f"at most {limit('iam.tag-value')} letters, digits, spaces and . : / = + - @ _",
    ),
]
_OWN_TAGS = 5
"""Kept free for tags of ours."""


class Fleet(Model):
    """A GitHub organisation's GPU runners and everything that they need."""

    name: Name
    """Name of the cluster and prefix of what people type; by default PROJECT-STACK."""
    region: Annotated[str, Matching(r"^[a-z]{2}(-[a-z]+)+-\d$", "an AWS region, such as us-west-2")]
    """AWS region; by default `aws:region`."""
    github: GitHub
    """The runners' organisation, repository or enterprise, and their credential."""
    network: Network = NewNetwork()
    """The VPC, made or adopted."""
    cluster: Cluster = NewCluster()
    """The Kubernetes cluster: made, adopted, or reached by a kubeconfig."""
    pools: Annotated[dict[Name, GpuPool], Field(min_length=1), AfterValidator(with_names)]
    """GPU pools by name."""
    runners: Annotated[dict[RunnerKey, Runner], AfterValidator(with_names)] = {}
    """Runner scale sets by name."""
    serving: Serving | None = None
    """Models served on the pools; by default none. It belongs to the layer `cluster`."""
    images: Images = Images()
    """Registry, runner images and the pipeline for machine images."""
    monitoring: Monitoring = Monitoring()
    """GPU metrics and alerts, and a Prometheus for them."""
    logs: Logs = Logs()
    """Logs of jobs."""
    mirror: Mirror = Mirror()
    """Sources of charts and images, for networks that do not reach their makers."""
    layers: Layers = Layers()
    """Parts held here or by other stacks; may also be written as `paddock:layers`."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=limit("imagebuilder.resource-tags") - _OWN_TAGS)] = {}
    """AWS tags on everything, instances and volumes included."""

    def ami(self, pool: GpuPool) -> Ami | None:
        """The image the pool's nodes boot; None when the catalogue has none for the cluster's minor.

        The default is the newest release in the catalogue, so it moves only when the catalogue is refreshed
        and the plan then shows which nodes roll.
        """
        if pool.ami is not None:
            return pool.ami
        return EksManaged(release=self.eks_release) if self.eks_release else None

    def kubernetes(self, pool: GpuPool) -> str:
        """The Kubernetes minor of the pool's nodes: of their image, which may be older than the control plane's."""
        ami = self.ami(pool)
        return (ami.kubernetes if ami else None) or self.cluster.version

    @property
    def eks_release(self) -> str | None:
        """Newest EKS AMI release in the catalogue for the cluster's minor; None when it has none."""
        newest = catalog.latest_ami(self.cluster.version)
        return newest.release if newest else None

    @property
    def aws_tags(self) -> dict[str, str]:
        """Tags of everything in AWS: the user's, and whose it is."""
        return {**self.tags, "paddock:fleet": self.name}

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster, made or adopted."""
        return self.cluster.existing if isinstance(self.cluster, ExistingCluster) else self.name

    def runners_on(self, pool: GpuPool) -> Iterator[Runner]:
        return iter(self._runners_by_pool.get(pool.name, ()))

    @property
    def served(self) -> tuple[ServedModel, ...]:
        """Models that this stack serves."""
        return tuple(self.serving.models.values()) if self.serving and self.holds("cluster") else ()

    def served_on(self, pool: GpuPool) -> tuple[ServedModel, ...]:
        return tuple(model for model in self.served if pool.name in model.pools)

    @cached_property
    def _runners_by_pool(self) -> dict[str, list[Runner]]:
        by_pool: dict[str, list[Runner]] = {}
        for runner in self.runners.values():
            by_pool.setdefault(runner.pool, []).append(runner)
        return by_pool

    @cached_property
    def results(self) -> dict[Hashable, Any]:
        """Results computed of this fleet, for `once_per_fleet`."""
        return {}

    def max_runners(self, runner: Runner) -> int:
        """Jobs a scale set runs at a time: as written, or what its pool can hold by GPUs."""
        if runner.max is not None:
            return runner.max
        pool = self.pools[runner.pool]
        per_node = min(n for n in (pool.gpu_resources_per_node(t) // runner.gpus for t in pool.types) if n)
        return pool.nodes.max * per_node

    @cached_property
    def uses_ebs_volumes(self) -> bool:
        if self.own_prometheus:
            return True
        return any(isinstance(v, Volume) for runner in self.runners.values() for v in runner.volumes.values())

    @property
    def sends_to_cloudwatch(self) -> CloudWatch | None:
        """Settings of CloudWatch where this stack sends metrics there."""
        return self.monitoring.cloudwatch if self.holds("cluster") and self.monitoring.enabled else None

    @property
    def own_prometheus(self) -> Prometheus | None:
        """Prometheus that this stack installs."""
        return self.monitoring.prometheus if self.holds("cluster") and self.monitoring.enabled else None

    @cached_property
    def steers_job_pods(self) -> bool:
        """True if jobs of a runner have pods of their own, which a pod outside the GPU nodes steers."""
        return any(runner.container == "kubernetes-novolume" for runner in self.runners.values())

    def holds(self, layer: Literal["images", "cluster", "runners"]) -> bool:
        """Return true if this stack holds the layer itself."""
        held: str = getattr(self.layers, layer)
        return held == "here"

    @property
    def makes_network(self) -> bool:
        """True if this stack needs the VPC, made here or adopted."""
        return self.holds("cluster") and self.owns_nodes

    @property
    def controller(self) -> str:
        """Controller of the scale sets: `own`, `everywhere`, or NAMESPACE/ACCOUNT of another team's."""
        return self.cluster.arc.controller or ("everywhere" if isinstance(self.cluster, NewCluster) else "own")

    @property
    def controller_of_others(self) -> tuple[str, str] | None:
        """Namespace and service account of another team's controller, where that serves the scale sets."""
        namespace, slash, account = self.controller.partition("/")
        return (namespace, account) if slash else None

    def crds(self, chart: Chart) -> OfCrds:
        """Return what becomes of the CRDs of a chart."""
        if chart == "arc" and self.controller_of_others:
            return "keep"
        chosen: OfCrds | None = getattr(self.cluster.crds, chart)
        return chosen or ("replace" if isinstance(self.cluster, NewCluster) else "share")

    @property
    def installs_device_plugin(self) -> bool:
        """True if this stack installs NVIDIA's device plugin."""
        return self.holds("cluster") and getattr(self.cluster, "device_plugin", "own") == "own"

    @property
    def owns_nodes(self) -> bool:
        """True if this fleet buys its GPU nodes, false if they exist already."""
        return not isinstance(self.cluster, KubeconfigCluster)


P = ParamSpec("P")
T = TypeVar("T")


def once_per_fleet(
    compute: Callable[Concatenate[Fleet, P], T],
) -> Callable[Concatenate[Fleet, P], T]:
    """Keep the results of a function of a fleet and its parts: none of them ever changes.

    Results are kept by the parts' identity, and with the parts, so that no other object takes that.
    """

    @wraps(compute)
    def kept(fleet: Fleet, /, *args: P.args, **options: P.kwargs) -> T:
        key = (compute, *map(id, args), *(sorted(options.items()) if options else ()))
        if (result := fleet.results.get(key)) is None:
            result = fleet.results[key] = (compute(fleet, *args, **options), args)
        return cast("T", result[0])

    return kept
