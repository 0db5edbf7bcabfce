"""Actions Runner Controller and the scale sets: what turns a queued job into a pod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra import versions
from infra.arc import runner_pod
from infra.arc.credentials import credential
from infra.arc.node_mark import NodeMark
from infra.arc.runner_pod import CONTROLLER_NAMESPACE, PRIVILEGED, RUNNERS
from infra.component import PRIVILEGED_BECAUSE, Component
from infra.helm import charts
from infra.helm.releases import release
from infra.network.policies import (
    Egress,
    Ingress,
    Port,
    addresses_in,
    anywhere,
    internet,
    kubernetes_api,
    name_service,
    network_policy,
    pods_of,
)
from infra.network.vpc import ranges
from paddock.fleet import Fleet, NewNetwork, nodes
from paddock.fleet.model.runner import Runner, Warm

HOOKS = Path(__file__).parents[2] / "runners" / "hooks"
SECRET = "github-credential"  # noqa: S105 - a name


class RunnerController(Component):
    """The controller, and the namespaces its pods and the runners live in."""

    release: k8s.helm.v3.Release

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
        used = {runner_pod.namespace(runner) for runner in fleet.runners.values()} | {RUNNERS}
        # ARC puts listeners into the controller's namespace; runner pods, which run strangers' code, never are there.
        self.namespaces = {CONTROLLER_NAMESPACE: self._namespace(CONTROLLER_NAMESPACE, "baseline")}
        for runners in sorted(used):
            level = "privileged" if runners == PRIVILEGED else "baseline"
            self.namespaces[runners] = self._namespace(runners, level)
        api = kubernetes_api(self, fleet)
        self._isolate(api)
        marks = self._node_mark(api)
        self.needs = {
            runners: [*self._secret(runners), self._hooks(runners), *marks.get(runners, [])] for runners in sorted(used)
        }
        """What must be in a runners' namespace before a scale set is."""
        for runners in sorted(used):
            self._limits(runners)
        self.priorities = {
            value: self._priority(value) for value in sorted({r.priority for r in fleet.runners.values()} - {0})
        }
        self.warm_account = self._warm_account(sorted(used)) if any(r.warm for r in fleet.runners.values()) else None
        self.release = release(
            self,
            name,
            charts.CONTROLLER,
            fleet.mirror,
            release_name="arc",
            namespace=self.namespaces[CONTROLLER_NAMESPACE].metadata.name,
            values={
                "replicaCount": 2,
                "serviceAccount": {"create": True, "name": runner_pod.CONTROLLER_ACCOUNT},
                "priorityClassName": "system-cluster-critical",
                "nodeSelector": nodes.system_selector(fleet),
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "metrics": {"controllerManagerAddr": ":8080", "listenerAddr": ":8080", "listenerEndpoint": "/metrics"},
                "flags": {
                    "logLevel": "info",
                    "logFormat": "json",
                    # Two by default: a push that starts fifty jobs would wait for its pods in pairs.
                    "runnerMaxConcurrentReconciles": 10,
                },
            },
            depends_on=[*self.namespaces.values(), *ready],
        )
        self.register_outputs({})

    def _namespace(self, name: str, level: str) -> k8s.core.v1.Namespace:
        labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": "restricted"}
        why = {PRIVILEGED_BECAUSE: "a Docker daemon in a pod needs all of its node's kernel"}
        metadata = k8s.meta.v1.ObjectMetaArgs(
            name=name, labels=labels, annotations=why if level == "privileged" else None
        )
        return k8s.core.v1.Namespace(f"{self.name}-{name}", metadata=metadata, opts=self.child())

    def _in(self, namespace: str, name: str) -> k8s.meta.v1.ObjectMetaArgs:
        return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=self.namespaces[namespace].metadata.name)

    def _isolate(self, api: Sequence[pulumi.Input[Egress]]) -> None:
        """Nobody talks to these pods; jobs reach the internet, and no private address that the fleet does not name."""
        network, monitoring = self.fleet.network, self.fleet.monitoring
        out = internet(ranges(self, self.fleet))
        for namespace in self.namespaces:
            jobs = namespace != CONTROLLER_NAMESPACE
            network_policy(
                self,
                f"{self.name}-{namespace}-default",
                self._in(namespace, "default"),
                ingress=[],
                egress=[Egress(to=[out if jobs else anywhere()]), name_service()],
            )
            if jobs:
                # The Kubernetes API is for pods that steer jobs in other pods.
                network_policy(
                    self,
                    f"{self.name}-{namespace}-api",
                    self._in(namespace, "kubernetes-api"),
                    pods={"paddock.dev/role": "coordinator"},
                    egress=api,
                )
            if jobs and isinstance(network, NewNetwork) and network.endpoints:
                # Interface endpoints take the place of ECR's and STS's public addresses, for every job.
                network_policy(
                    self,
                    f"{self.name}-{namespace}-endpoints",
                    self._in(namespace, "interface-endpoints"),
                    egress=[addresses_in([network.cidr], [443])],
                )
            if jobs and network.egress.allow:
                network_policy(
                    self,
                    f"{self.name}-{namespace}-allowed",
                    self._in(namespace, "allowed-networks"),
                    egress=[addresses_in(network.egress.allow)],
                )
        if monitoring.enabled:
            scrapers = [pods_of(namespace) for namespace in monitoring.scrapers]
            scrape = Ingress(from_=scrapers, ports=[Port(port=8080, protocol="TCP")])
            network_policy(self, f"{self.name}-metrics", self._in(CONTROLLER_NAMESPACE, "metrics"), ingress=[scrape])

    def _secret(self, namespace: str) -> list[pulumi.Resource]:
        """The credential, where ARC looks for it; nothing when somebody else puts it there."""
        github = self.fleet.github
        if github.kubernetes_secret:
            return []
        secret = k8s.core.v1.Secret(
            f"{self.name}-{namespace}-credential",
            metadata=self._in(namespace, SECRET),
            string_data=credential(github, self),
            opts=self.child(),
        )
        return [secret]

    def _hooks(self, namespace: str) -> k8s.core.v1.ConfigMap:
        scripts = {path.name: path.read_text(encoding="utf-8") for path in sorted(HOOKS.glob("*.sh"))}
        return k8s.core.v1.ConfigMap(
            f"{self.name}-{namespace}-hooks",
            metadata=self._in(namespace, runner_pod.HOOKS),
            data=scripts,
            opts=self.child(),
        )

    def _node_mark(self, api: Sequence[pulumi.Input[Egress]]) -> dict[str, list[pulumi.Resource]]:
        """By namespace: the account that runner pods mark their node with."""
        marking = {runner_pod.namespace(r) for r in self.fleet.runners.values() if runner_pod.marks_node(r)}
        if not marking:
            return {}
        namespaces = {namespace: self.namespaces[namespace] for namespace in sorted(marking)}
        mark = NodeMark(f"{self.name}-node-mark", namespaces, api, opts=self.child())
        return {namespace: [account] for namespace, account in mark.accounts.items()}

    def _limits(self, namespace: str) -> None:
        """A quota from the size of the pools, and defaults for containers that a workflow brings."""
        fleet = self.fleet
        here = [r for r in fleet.runners.values() if runner_pod.namespace(r) == namespace]
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
            default=None if namespace == PRIVILEGED else {"memory": "512Mi"},
        )
        k8s.core.v1.LimitRange(
            f"{self.name}-{namespace}-defaults",
            metadata=self._in(namespace, "defaults"),
            spec=k8s.core.v1.LimitRangeSpecArgs(limits=[defaults]),
            opts=self.child(),
        )

    def _priority(self, value: int) -> k8s.scheduling.v1.PriorityClass:
        name = runner_pod.priority_class(value)
        return k8s.scheduling.v1.PriorityClass(
            f"{self.name}-{name}",
            metadata={"name": name},
            value=value,
            # A job that runs is never thrown out for one that waits.
            preemption_policy="Never",
            opts=self.child(),
        )

    def _warm_account(self, namespaces: list[str]) -> k8s.core.v1.ServiceAccount:
        """May change how many runners a scale set keeps, and nothing else."""
        account = k8s.core.v1.ServiceAccount(
            f"{self.name}-warm", metadata=self._in(CONTROLLER_NAMESPACE, "warm-capacity"), opts=self.child()
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
                subjects=[{"kind": "ServiceAccount", "name": account.metadata.name, "namespace": CONTROLLER_NAMESPACE}],
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
        namespace = runner_pod.namespace(runner)
        needs: list[pulumi.Resource] = [controller.release, *controller.needs[namespace]]
        if runner.priority:
            needs.append(controller.priorities[runner.priority])
        if runner.container == "kubernetes-novolume":
            needs.append(
                k8s.core.v1.ConfigMap(
                    f"{name}-pod-template",
                    metadata={
                        "name": runner_pod.template_name(runner),
                        "namespace": controller.namespaces[namespace].metadata.name,
                    },
                    data={"pod.yaml": yaml.safe_dump(runner_pod.job_template(fleet, runner), sort_keys=True)},
                    opts=self.child(),
                )
            )
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
        patch = json.dumps({"spec": {"minRunners": warm.min}})
        target = ["autoscalingrunnerset.actions.github.com", runner.scale_set]
        namespace = runner_pod.namespace(runner)
        k8s.batch.v1.CronJob(
            f"{self.name}-{job}",
            metadata={
                "name": job,
                "namespace": controller.namespaces[CONTROLLER_NAMESPACE].metadata.name,
            },
            spec={
                "schedule": warm.at,
                "time_zone": warm.time_zone,
                "concurrency_policy": "Replace",
                "successful_jobs_history_limit": 1,
                "failed_jobs_history_limit": 2,
                "starting_deadline_seconds": 600,
                "job_template": {
                    "spec": {
                        "backoff_limit": 5,
                        "active_deadline_seconds": 300,
                        "ttl_seconds_after_finished": 3600,
                        "template": {
                            "spec": {
                                "restart_policy": "OnFailure",
                                "service_account_name": controller.warm_account.metadata.name,
                                "node_selector": nodes.system_selector(fleet),
                                "security_context": {
                                    "run_as_non_root": True,
                                    "run_as_user": 65534,
                                    "seccomp_profile": {"type": "RuntimeDefault"},
                                },
                                "containers": [
                                    {
                                        "name": "kubectl",
                                        "image": fleet.mirror.image(
                                            f"registry.k8s.io/kubectl:{versions.KUBECTL[fleet.cluster.version]}"
                                        ),
                                        "args": ["patch", *target, "-n", namespace, "--type=merge", "-p", patch],
                                        "resources": {
                                            "requests": {"cpu": "10m", "memory": "64Mi"},
                                            "limits": {"memory": "128Mi"},
                                        },
                                        "security_context": {
                                            "allow_privilege_escalation": False,
                                            "read_only_root_filesystem": True,
                                            "capabilities": {"drop": ["ALL"]},
                                        },
                                    }
                                ],
                            }
                        },
                    }
                },
            },
            opts=self.child(depends_on=[scale_set]),
        )
