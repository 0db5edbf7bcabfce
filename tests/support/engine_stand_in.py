"""A stand-in for Pulumi's CLI on one stack: resources that are applied and deleted in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddock.pulumi_cli.events import Diagnostic, ResourceStep
from paddock.pulumi_cli.stack import RELEASE, PulumiError, Resource, Run, RunInterrupted

ARC_COMPONENT = "urn:pulumi:dev::paddock::paddock:infra:RunnerController$"
CONTROLLER = f"{ARC_COMPONENT}{RELEASE}::arc"
CRD_TYPE = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinitionPatch"
CRD = f"{ARC_COMPONENT}{CRD_TYPE}::arc-autoscalingrunnersets.actions.github.com"
SET = f"urn:pulumi:dev::paddock::paddock:infra:RunnerScaleSet${RELEASE}::gpu"
KEY = "urn:pulumi:dev::paddock::paddock:infra:Cluster$aws:kms/key:Key::cluster-secrets"
CLUSTER = "urn:pulumi:dev::paddock::paddock:infra:Cluster$aws:eks/cluster:Cluster::cluster-eksCluster"
NODES = "urn:pulumi:dev::paddock::paddock:infra:GpuPool$aws:eks/nodeGroup:NodeGroup::t4-spot"
REPOSITORY = "urn:pulumi:dev::paddock::paddock:infra:Registry$aws:ecr/repository:Repository::registry-runner-gpu"
NAMESPACE = f"{ARC_COMPONENT}kubernetes:core/v1:Namespace::arc-arc-runners"
STATEFUL_SET = "urn:pulumi:dev::paddock::paddock:infra:Prometheus$kubernetes:apps/v1:StatefulSet::prometheus"


def stack(version: str) -> list[Resource]:
    """Return what a small stack holds, with ARC at a version."""
    controller = {"name": "arc", "chart": "oci://x/gha-runner-scale-set-controller", "version": version}
    runners = {"name": "gpu", "chart": "oci://x/gha-runner-scale-set", "version": version, "namespace": "arc-runners"}
    return [
        Resource(KEY, "aws:kms/key:Key", "key-1", protect=True),
        Resource(CLUSTER, "aws:eks/cluster:Cluster", "paddock-dev", protect=True),
        Resource(REPOSITORY, "aws:ecr/repository:Repository", "paddock-dev/runner-gpu", protect=True),
        Resource(NODES, "aws:eks/nodeGroup:NodeGroup", "paddock-dev:t4-spot"),
        Resource(NAMESPACE, "kubernetes:core/v1:Namespace", "arc-runners"),
        Resource(CRD, CRD_TYPE, "crd", retained=True),
        Resource(CONTROLLER, RELEASE, "arc-systems/arc", inputs=controller),
        Resource(SET, RELEASE, "arc-runners/gpu", inputs=runners),
    ]


class StandInForPulumi:
    """Runs that change the resources, and call `changed` with what they did. `fails` and `interrupted` name a run."""

    def __init__(
        self, resources: Sequence[Resource], changed: Callable[[str, list[str]], None] = lambda name, urns: None
    ) -> None:
        self.held, self.changed = list(resources), changed
        self.fails = self.interrupted = ""
        self.also: tuple[ResourceStep, ...] = ()
        """What a preview finds beside ARC."""
        self.refused: tuple[Diagnostic, ...] = ()
        """What AWS says in a run that fails."""
        self.runs: list[tuple[str, list[str]]] = []

    def resources(self) -> tuple[Resource, ...]:
        return tuple(self.held)

    def preview(self, notify: Callable[[str], None] = lambda text: None) -> Run:
        self._begin("preview", [])
        return Run("preview", (ResourceStep("update", SET), *self.also))

    def preview_destroy(self, *, exclude: Sequence[str] = (), protected: bool = False) -> Run:
        return Run("destroy", tuple(ResourceStep("delete", urn) for urn in self._going(exclude, protected)))

    def up(self, notify: Callable[[str], None], *, targets: Sequence[str] = (), replace: Sequence[str] = ()) -> Run:
        name = "up controller" if targets else "up replacing" if replace else "up"
        urns = list(targets or replace or [SET])
        self._begin(name, urns)
        self.changed(name, urns)
        return Run("up", tuple(ResourceStep("update", urn) for urn in urns))

    def destroy(
        self,
        notify: Callable[[str], None],
        *,
        targets: Sequence[str] = (),
        exclude: Sequence[str] = (),
        protected: bool = False,
    ) -> Run:
        name = "destroy targets" if targets else "destroy"
        urns = list(targets) if targets else self._going(exclude, protected)
        self._begin(name, urns)
        self.held = [item for item in self.held if item.urn not in urns]
        self.changed(name, urns)
        return Run("destroy", tuple(ResourceStep("delete", urn) for urn in urns))

    def _going(self, exclude: Sequence[str], protected: bool) -> list[str]:
        return [item.urn for item in self.held if item.urn not in exclude and (protected or not item.protect)]

    def _begin(self, name: str, urns: list[str]) -> None:
        self.runs.append((name, urns))
        if self.fails == name:
            done = Run("up", (ResourceStep("update", CRD),), self.refused)
            raise PulumiError(f"pulumi {name} failed: arc: helm: timed out", "pulumi up", done)
        if self.interrupted == name:
            raise RunInterrupted(Run("up", (ResourceStep("update", CRD),)))
