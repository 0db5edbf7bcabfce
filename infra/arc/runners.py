"""Actions Runner Controller and the scale sets: what turns a queued job into a pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import versions, workloads
from infra.arc import runner_pod
from infra.arc.node_mark import NodeMark
from infra.component import Component
from infra.helm import charts
from infra.helm.releases import release
from infra.manifests import manifest
from infra.network.policies import (
    Egress,
    Ingress,
    addresses_in,
    anywhere,
    internet,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
    tcp,
)
from infra.network.vpc import ranges
from paddock.fleet import Fleet, NewNetwork, arc, nodes
from paddock.fleet.model.runner import Runner, Warm
from paddock.labels import PRIVILEGED_BECAUSE, ROLE

HOOKS = Path(__file__).parents[2] / "runners" / "hooks"
SECRET = "github-credential"  # noqa: S105 - a name


class RunnerController(Component):
    """The controllers, and the namespaces their pods and the runners live in."""

    releases: dict[str, k8s.helm.v3.Release]
    """By namespace of runner pods; none where another team's controller serves them."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        ready: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`ready` is what the controller's pods wait for: nodes to run on, and a name service."""
        super().__init__(name, opts)
        self.fleet = fleet
        used, places = arc.namespaces(fleet), fleet.cluster.arc
        own = () if fleet.controller_of_others else arc.systems(fleet)
        warm = any(runner.warm for runner in fleet.runners.values())
        # ARC puts listeners into the controller's namespace; runner pods, which run strangers' code, never are there.
        # What changes warm capacity is kept from them, too, also where the controller is another team's.
        self.systems = tuple(dict.fromkeys([*own, *([places.systems] if warm else [])]))
        self.namespaces = {name: self._namespace(name, "baseline") for name in self.systems}
        for runners in used:
            level = "privileged" if runners == places.privileged else "baseline"
            self.namespaces[runners] = self._namespace(runners, level)
        api = kubernetes_api(self, fleet)
        self._isolate(api)
        marks = self._node_mark(api)
        self.needs = {
            runners: [*self._secret(runners), self._hooks(runners), *marks.get(runners, [])] for runners in used
        }
        """What must be in a runners' namespace before a scale set is."""
        for runners in used:
            self._limits(runners)
        self.priorities = {
            value: self._priority(value) for value in sorted({r.priority for r in fleet.runners.values()} - {0})
        }
        self.warm_account = self._warm_account(used) if warm else None
        self.releases = {} if fleet.controller_of_others else self._controllers(ready)
        self.register_outputs({})

    def _controllers(self, ready: Sequence[pulumi.Resource]) -> dict[str, k8s.helm.v3.Release]:
        made: dict[arc.Controller, k8s.helm.v3.Release] = {}
        crds = self.fleet.crds("arc")
        by_place = arc.controllers(self.fleet)
        for controller in dict.fromkeys(by_place.values()):
            made[controller] = release(
                self,
                f"{self.name}-privileged" if controller.watches == self.fleet.cluster.arc.privileged else self.name,
                charts.CONTROLLER,
                self.fleet.mirror,
                release_name=controller.release,
                namespace=self.namespaces[controller.namespace].metadata.name,
                values=runner_pod.controller_values(self.fleet, controller),
                depends_on=[*self.namespaces.values(), *ready, *made.values()],
                # The first brings them, and the second comes after it.
                crds="keep" if made else crds,
            )
        return {place: made[controller] for place, controller in by_place.items()}

    def _namespace(self, name: str, level: str) -> k8s.core.v1.Namespace:
        labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": "restricted"}
        why = {PRIVILEGED_BECAUSE: "a Docker daemon in a pod needs all of its node's kernel"}
        metadata = k8s.meta.v1.ObjectMetaArgs(
            name=name, labels=labels, annotations=why if level == "privileged" else None
        )
        return k8s.core.v1.Namespace(f"{self.name}-{name}", metadata=metadata, opts=self.child())

    def _in(self, namespace: str, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return workloads.within(self.namespaces[namespace], name)

    def _isolate(self, api: Sequence[pulumi.Input[Egress]]) -> None:
        """Nobody talks to these pods; jobs reach the internet, and no private address that the fleet does not name."""
        network, monitoring = self.fleet.network, self.fleet.monitoring
        out = internet(ranges(self, self.fleet))
        for namespace in self.namespaces:
            jobs = namespace not in self.systems
            outward = [Egress(to=[out if jobs else anywhere()]), name_service()]
            self._policy(namespace, "default", "default", outward, ingress=[])
            if not jobs:
                continue
            # The Kubernetes API is for pods that steer jobs in other pods.
            self._policy(namespace, "api", "kubernetes-api", api, pods={ROLE: "coordinator"})
            if isinstance(network, NewNetwork) and network.endpoints:
                # Interface endpoints take the place of ECR's and STS's public addresses, for every job.
                endpoints = addresses_in([network.cidr], [443])
                self._policy(namespace, "endpoints", "interface-endpoints", [endpoints])
            if network.egress.allow:
                self._policy(namespace, "allowed", "allowed-networks", [addresses_in(network.egress.allow)])
        if monitoring.enabled:
            scrapers = [pods_of(namespace) for namespace in monitoring.scrapers]
            scrape = Ingress(from_=scrapers, ports=tcp(8080))
            for namespace in self.systems:
                name = "metrics" if namespace == self.fleet.cluster.arc.systems else f"{namespace}-metrics"
                network_policy(self, f"{self.name}-{name}", self._in(namespace, "metrics"), ingress=[scrape])

    def _policy(
        self, namespace: str, resource: str, name: str, egress: Sequence[pulumi.Input[Egress]], **more: Any
    ) -> None:
        metadata = self._in(namespace, name)
        network_policy(self, f"{self.name}-{namespace}-{resource}", metadata, egress=egress, **more)

    def _secret(self, namespace: str) -> list[pulumi.Resource]:
        """The credential, where ARC looks for it; nothing when somebody else puts it there."""
        github = self.fleet.github
        if github.kubernetes_secret:
            return []
        secret = k8s.core.v1.Secret(
            f"{self.name}-{namespace}-credential",
            metadata=self._in(namespace, SECRET),
            string_data=self._credential(),
            opts=self.child(),
        )
        return [secret]

    def _credential(self) -> dict[str, pulumi.Input[str]]:
        """The keys that ARC's chart looks for; the value is in Pulumi's secrets or AWS's, never in the model."""
        github = self.fleet.github
        value = self.secret(github.secret_source, "githubAppKey" if github.app else "githubToken")
        if github.app is None:
            return {"github_token": value}
        return {
            "github_app_id": github.app.id,
            "github_app_installation_id": github.app.installation,
            "github_app_private_key": value,
        }

    def _hooks(self, namespace: str) -> k8s.core.v1.ConfigMap:
        scripts = {path.name: path.read_text(encoding="utf-8") for path in sorted(HOOKS.glob("*.sh"))}
        metadata = self._in(namespace, runner_pod.HOOKS)
        return workloads.config_map(self, f"{self.name}-{namespace}-hooks", metadata, scripts)

    def _node_mark(self, api: Sequence[pulumi.Input[Egress]]) -> dict[str, list[pulumi.Resource]]:
        """By namespace: the account that runner pods mark their node with."""
        marking = {arc.namespace(self.fleet, r) for r in self.fleet.runners.values() if runner_pod.marks_node(r)}
        if not marking:
            return {}
        namespaces = {namespace: self.namespaces[namespace] for namespace in sorted(marking)}
        shared = self.fleet.cluster.arc.named(arc.NODE_MARK)
        mark = NodeMark(f"{self.name}-node-mark", shared, namespaces, api, opts=self.child())
        return {namespace: [account] for namespace, account in mark.accounts.items()}

    def _limits(self, namespace: str) -> None:
        """A quota from the size of the pools, and defaults for containers that a workflow brings."""
        fleet = self.fleet
        here = [r for r in fleet.runners.values() if arc.namespace(fleet, r) == namespace]
        pools = {r.pool: fleet.pools[r.pool] for r in here}
        gpus = sum(pool.nodes.max * max(map(pool.gpu_resources_per_node, pool.types)) for pool in pools.values())
        pods = sum(fleet.max_runners(r) * (2 if r.container == "kubernetes-novolume" else 1) for r in here)
        k8s.core.v1.ResourceQuota(
            f"{self.name}-{namespace}-quota",
            metadata=self._in(namespace, "pools"),
            # A few pods more, for those that are going while their successors come.
            spec={"hard": {f"requests.{nodes.GPU}": str(gpus), "pods": str(pods + max(10, pods // 5))}},
            opts=self.child(),
        )
        # The Docker daemon must stay without a limit: what a job starts in it lives in the daemon's cgroup.
        defaults = k8s.core.v1.LimitRangeItemArgs(
            type="Container",
            default_request={"cpu": "100m", "memory": "128Mi"},
            default=None if namespace == fleet.cluster.arc.privileged else {"memory": "512Mi"},
        )
        k8s.core.v1.LimitRange(
            f"{self.name}-{namespace}-defaults",
            metadata=self._in(namespace, "defaults"),
            spec=k8s.core.v1.LimitRangeSpecArgs(limits=[defaults]),
            opts=self.child(),
        )

    def _priority(self, value: int) -> k8s.scheduling.v1.PriorityClass:
        name = runner_pod.priority_class(self.fleet, value)
        return k8s.scheduling.v1.PriorityClass(
            f"{self.name}-{name}",
            metadata={"name": name},
            value=value,
            # A job that runs is never thrown out for one that waits.
            preemption_policy="Never",
            opts=self.child(),
        )

    def _warm_account(self, namespaces: Sequence[str]) -> k8s.core.v1.ServiceAccount:
        """May change how many runners a scale set keeps, and nothing else."""
        account = k8s.core.v1.ServiceAccount(
            f"{self.name}-warm", metadata=self._in(self.fleet.cluster.arc.systems, "warm-capacity"), opts=self.child()
        )
        sets = sorted(runner.scale_set for runner in self.fleet.runners.values() if runner.warm)
        rule = k8s.rbac.v1.PolicyRuleArgs(
            api_groups=["actions.github.com"],
            resources=["autoscalingrunnersets"],
            resource_names=sets,
            verbs=["get", "patch"],
        )
        for namespace in namespaces:
            role = k8s.rbac.v1.Role(
                f"{self.name}-{namespace}-warm",
                metadata=self._in(namespace, "warm-capacity"),
                rules=[rule],
                opts=self.child(),
            )
            k8s.rbac.v1.RoleBinding(
                f"{self.name}-{namespace}-warm",
                metadata=self._in(namespace, "warm-capacity"),
                role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata.name},
                subjects=[
                    {"kind": "ServiceAccount", "name": account.metadata.name, "namespace": account.metadata.namespace}
                ],
                opts=self.child(),
            )
        return account


class RunnerScaleSet(Component):
    """One scale set: a Helm release, and a CronJob for each change of its warm capacity."""

    def __init__(
        self,
        name: str,
        runner: Runner,
        fleet: Fleet,
        controller: RunnerController,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        namespace = arc.namespace(fleet, runner)
        needs: list[pulumi.Resource] = [*controller.needs[namespace]]
        if namespace in controller.releases:
            needs.insert(0, controller.releases[namespace])
        if runner.priority:
            needs.append(controller.priorities[runner.priority])
        if runner.container == "kubernetes-novolume":
            metadata = workloads.within(controller.namespaces[namespace], runner_pod.template_name(runner))
            text = yaml.safe_dump(runner_pod.job_template(fleet, runner), sort_keys=True)
            needs.append(workloads.config_map(self, f"{name}-pod-template", metadata, {"pod.yaml": text}))
        scale_set = release(
            self,
            name,
            charts.SCALE_SET,
            fleet.mirror,
            release_name=runner.scale_set,
            namespace=controller.namespaces[namespace].metadata.name,
            values=runner_pod.scale_set_values(fleet, runner, fleet.github.kubernetes_secret or SECRET),
            depends_on=needs,
            # GitHub takes labels only when a set is made: edited later they would never match a job.
            replacement_trigger=sorted(runner.effective_labels),
            delete_before_replace=True,
        )
        for index, warm in enumerate(runner.warm):
            # A CronJob's name has 52 characters at most: eleven of Kubernetes' 63 go to its jobs. A set's has 45.
            self._keep_warm(f"{runner.scale_set}-warm{index}", warm, fleet, runner, controller, scale_set)
        self.register_outputs({})

    def _keep_warm(
        self,
        job: str,
        warm: Warm,
        fleet: Fleet,
        runner: Runner,
        controller: RunnerController,
        scale_set: k8s.helm.v3.Release,
    ) -> None:
        """ARC has no schedules of its own; this patches the one number that a schedule would change."""
        assert controller.warm_account is not None  # noqa: S101 - the controller makes it when any runner is warm
        k8s.batch.v1.CronJob(
            f"{self.name}-{job}",
            metadata=workloads.within(controller.namespaces[fleet.cluster.arc.systems], job),
            spec=manifest(
                "warm",
                at=warm.at,
                time_zone=warm.time_zone,
                account=controller.warm_account.metadata.name,
                selector=nodes.system_selector(fleet),
                image=fleet.mirror.image(f"registry.k8s.io/kubectl:{versions.KUBECTL[fleet.cluster.version]}"),
                scale_set=runner.scale_set,
                namespace=arc.namespace(fleet, runner),
                patch=json.dumps({"spec": {"minRunners": warm.min}}),
            ),
            opts=self.child(depends_on=[scale_set]),
        )
