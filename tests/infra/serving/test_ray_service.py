"""The RayService of a fleet: against KubeRay's own definition, and what its pods may and reach."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from infra.serving import pods
from paddock.catalog import _data
from paddock.catalog.cuda_match import tag_cuda
from paddock.catalog.ml_images import engine_arguments, engine_version
from paddock.fleet import Stack, nodes
from paddock.fleet.model.network import PRIVATE_RANGES
from paddock.fleet.sizing.capacity import available
from paddock.fleet.sizing.serving import worker_request
from paddock.labels import POOL
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import Secret
from tests.support.crds import mistakes, validator
from tests.support.fleets import SERVING, fleet_data, named, stack

A100 = {"instances": ["p4d.24xlarge"], "capacity": "on-demand", "nodes": {"max": 2}}


def serving(**settings: Any) -> dict[str, Any]:
    return fleet_data(pools={"t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 4}}, "a100": A100}) | {
        "serving": deepcopy(SERVING) | settings
    }


FULL = serving(
    weights="models",
    limits={"tokens": 4000, "queue": 65, "userRequests": 7, "userRequestsPerMinute": 60},
    clients=["web"],
    redis={"address": "rediss://ray.example.com:6379"},
    head={"cpu": 2, "memory": "6Gi"},
    models={
        "chat": {
            "model": "qwen3-0.6b",
            "pools": ["t4", "a100"],
            "checkpoint": "qwen3-0.6b",
            "quantization": "fp8",
            "replicas": {"min": 3, "max": 5, "idle": "1h"},
            "engineArgs": {"enable_prefix_caching": True, "compilation_config": {"level": 3}},
        },
        "large": {
            "model": "llama-3.1-70b",
            "pools": ["a100"],
            "tensorParallel": 8,
            "checkpoint": "llama/70b",
            "dtype": "bf16",
            "mode": "default",
        },
    },
    upgrade="none",
) | {"monitoring": {"enabled": True}}
FLEETS = {"smallest": serving(), "full": FULL}


@cache
def planned(name: str) -> tuple[Stack, Graph]:
    read = stack(FLEETS[name])
    return read, plan_graph(read)


def spec(name: str) -> dict[str, Any]:
    (service,) = planned(name)[1].of_type("kubernetes:ray.io/v1:RayService")
    return dict(service.inputs["spec"])


def templates(name: str) -> list[dict[str, Any]]:
    """The head's template, and those of the workers."""
    cluster = spec(name)["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"] for group in groups]


def policies(name: str, namespace: str = pods.NAMESPACE) -> dict[str, Any]:
    return {
        resource.inputs["metadata"]["name"]: resource.inputs["spec"]
        for resource in planned(name)[1].of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        if resource.inputs["metadata"]["namespace"] == namespace
    }


@pytest.fixture(scope="module")
def schema(reference_data: Path) -> Any:
    return validator(reference_data / "crds/ray.io_rayservices.yaml")


@pytest.mark.parametrize("name", FLEETS)
def test_kuberay_takes_the_ray_service(schema: Any, name: str) -> None:
    assert mistakes(schema, spec(name)) == []


@pytest.mark.parametrize(("path", "value"), [
    (("rayClusterConfig", "authOptions", "mode"), "none"),
    (("rayClusterConfig", "workerGroupSpecs", 0, "maxReplica"), 1),
    (("rayClusterConfig", "headGroupSpec", "template", "spec", "containers", 0, "gpus"), 1),
    (("rayClusterConfig", "gcsFaultToleranceOptions"), {"redis": "x"}),
])  # fmt: skip
def test_wrong_ray_services_are_refused(schema: Any, path: tuple[Any, ...], value: Any) -> None:
    bad = deepcopy(spec("smallest"))
    place: Any = bad
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert mistakes(schema, bad)


def test_a_fleet_without_serving_has_nothing_of_it() -> None:
    graph = plan_graph(stack(fleet_data()))
    assert not [urn for urn in graph.resources if re.search(r"serving|ray", urn.partition("::paddock::")[2])]


def test_ray_is_the_one_of_the_lock(root: Path) -> None:
    assert f"ray=={versions.RAY} " in (root / "locks/serve.txt").read_text()


def test_arguments_of_vllm_are_those_of_the_pinned_ray() -> None:
    document = _data.document("vllm_arguments.json")
    assert (document["ray"], engine_version()) == (versions.RAY, document["vllm"])
    assert tag_cuda(versions.RAY_LLM), "or the plan holds it against no driver"


@pytest.mark.parametrize("name", FLEETS)
def test_workers_start_at_zero_and_fit_their_pool(name: str) -> None:
    fleet = planned(name)[0].fleet
    for group in spec(name)["rayClusterConfig"]["workerGroupSpecs"]:
        labels, template = group["labels"], group["template"]["spec"]
        model, pool = fleet.served, fleet.pools[labels["paddock.pool"]]
        (served,) = [model for model in model if model.name == labels["paddock.model"]]
        gpus = template["containers"][0]["resources"]["limits"][nodes.GPU]

        assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, served.replicas.max)
        assert gpus == group["rayStartParams"]["num-gpus"] == str(served.tensor_parallel)
        assert template["nodeSelector"] == {POOL: pool.name}
        assert template["tolerations"] == [nodes.TAINT.toleration()]
        for instance in pool.types:
            room, request = available(fleet, pool, instance), worker_request(fleet, served, pool)
            assert min((room - request).amounts()) >= 0


@pytest.mark.parametrize("name", FLEETS)
def test_pods_of_ray_are_ones_of_the_restricted_level(name: str) -> None:
    autoscaler = spec(name)["rayClusterConfig"]["autoscalerOptions"]["securityContext"]
    for pod in [gateway_pod(name), *(template["spec"] for template in templates(name))]:
        assert pod["securityContext"]["runAsNonRoot"] is True
        for context in (*(container["securityContext"] for container in pod["containers"]), autoscaler):
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in pod["volumes"])
    namespaces = [
        resource.inputs["metadata"]
        for resource in planned(name)[1].of_type("kubernetes:core/v1:Namespace")
        if resource.inputs["metadata"]["name"] in (pods.NAMESPACE, "ray-system")
    ]
    assert [namespace["labels"]["pod-security.kubernetes.io/enforce"] for namespace in namespaces] == ["restricted"] * 2


def gateway_pod(name: str) -> dict[str, Any]:
    (deployment,) = [
        resource.inputs["spec"]
        for resource in planned(name)[1].of_type("kubernetes:apps/v1:Deployment")
        if resource.inputs["metadata"]["namespace"] == pods.NAMESPACE
    ]
    return dict(deployment["template"]["spec"])


def test_only_the_head_has_a_kubernetes_token_and_the_gateway_the_keys() -> None:
    head, *workers = [template["spec"] for template in templates("full")]
    front = gateway_pod("full")
    assert head["serviceAccountName"] == "ray-head"
    assert [pod["automountServiceAccountToken"] for pod in (front, *workers)] == [False] * (1 + len(workers))
    assert [volume["secret"]["secretName"] for volume in front["volumes"] if "secret" in volume] == ["serving-keys"]
    assert not [volume for pod in (head, *workers) for volume in pod["volumes"] if "secret" in volume]


@pytest.mark.parametrize("name", FLEETS)
def test_secrets_stay_secret(name: str) -> None:
    secrets = {
        resource.inputs["metadata"]["name"]: resource.inputs["stringData"]
        for resource in planned(name)[1].of_type("kubernetes:core/v1:Secret")
        if resource.inputs["metadata"]["namespace"] == pods.NAMESPACE
    }
    assert set(secrets) == {"serving-keys", "ray-token"} | ({"redis-password"} if name == "full" else set())
    assert all(
        isinstance(held, Secret) or all(isinstance(v, Secret) for v in held.values()) for held in secrets.values()
    )


def test_somebody_elses_secrets_are_only_named() -> None:
    data = serving(apiKeys="kubernetes:our-keys", rayToken="kubernetes:our-token")
    graph = plan_graph(stack(data))
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    cluster = service.inputs["spec"]["rayClusterConfig"]
    assert cluster["authOptions"] == {"mode": "token", "secretName": "our-token"}
    (gateway,) = [
        resource
        for resource in graph.of_type("kubernetes:apps/v1:Deployment")
        if resource.inputs["metadata"]["namespace"] == pods.NAMESPACE
    ]
    assert "our-keys" in repr(gateway.inputs["spec"]["template"]["spec"]["volumes"])
    assert gateway.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}, "the secret comes after `up`"
    assert not [
        resource.name
        for resource in graph.of_type("kubernetes:core/v1:Secret")
        if resource.inputs["metadata"]["namespace"] == pods.NAMESPACE
    ]


@pytest.mark.parametrize("name", FLEETS)
def test_clients_reach_the_gateway_alone_and_it_alone_reaches_ray(name: str) -> None:
    ruled = policies(name)
    assert (ruled["default"]["policyTypes"], "ingress" in ruled["default"]) == (["Ingress", "Egress"], False)
    callers = {
        (
            policy["podSelector"]["matchLabels"]["paddock.dev/serving"],
            peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
            peer.get("podSelector", {}).get("matchLabels", {}).get("paddock.dev/serving"),
            tuple(port["port"] for port in rule.get("ports", ())),
        )
        for policy in ruled.values()
        for rule in policy.get("ingress", ())
        for peer in rule["from"]
    }
    least = {
        ("ray", "serving", "ray", ()),
        ("ray", "serving", "gateway", (8000,)),
        ("ray", "ray-system", None, (8265, 8000)),
    }
    others = {
        ("gateway", "web", None, (8000,)),
        ("gateway", "monitoring", None, (8000,)),
        ("ray", "monitoring", None, (8080,)),
    }
    assert callers == least | (others if name == "full" else set())
    assert "0.0.0.0/0" not in repr(ruled)


def test_redis_is_reached_inside_the_vpc_alone() -> None:
    (rule,) = policies("full")["redis"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.0/16"}}]
    assert rule["ports"] == [{"port": 6379, "protocol": "TCP"}]
    options = spec("full")["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert options["redisPassword"]["valueFrom"]["secretKeyRef"] == {"name": "redis-password", "key": "password"}


@pytest.mark.parametrize(("cluster", "ranges"), [
    ({"existing": "shared", "version": "1.35"}, ["10.0.0.0/16"]),
    ({"kubeconfig": "~/.kube/config", "version": "1.35"}, list(PRIVATE_RANGES)),
])  # fmt: skip
def test_clusters_of_others_reach_redis_in_private_networks(cluster: dict[str, Any], ranges: list[str]) -> None:
    data = serving(redis={"address": "rediss://ray.example.com:6379"}) | {"cluster": cluster}
    if "existing" in cluster:
        data["network"] = named("existing-cluster").fleet.network.model_dump(by_alias=True)
    graph = plan_graph(stack(data))
    (policy,) = [
        resource.inputs["spec"]
        for resource in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        if resource.inputs["metadata"]["name"] == "redis"
    ]
    assert [peer["ipBlock"]["cidr"] for rule in policy["egress"] for peer in rule["to"]] == ranges
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    assert service.inputs["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["nodeSelector"] == {}


def test_budgets_keep_all_but_one_of_the_lasting_replicas() -> None:
    budgets = planned("full")[1].of_type("kubernetes:policy/v1:PodDisruptionBudget")
    assert [budget.inputs["spec"] for budget in budgets] == [
        {"minAvailable": 2, "selector": {"matchLabels": {"paddock.dev/model": "chat"}}},
        {"maxUnavailable": 1, "selector": {"matchLabels": {"paddock.dev/serving": "gateway"}}},
    ]


def test_the_operator_may_act_in_the_namespace_of_serving_alone() -> None:
    releases = planned("full")[1].of_type("kubernetes:helm.sh/v3:Release")
    (operator,) = [release for release in releases if release.inputs["chart"] == "kuberay-operator"]
    assert operator.inputs["values"]["singleNamespaceInstall"] is True
    assert operator.inputs["values"]["watchNamespace"] == ["serving"]
    assert operator.inputs["values"]["image"] == {"tag": f"v{versions.KUBERAY}"}
    assert operator.inputs["skipCrds"] is True


def configuration(name: str) -> dict[str, Any]:
    """What the gateway reads."""
    (map_,) = [
        resource.inputs["data"]
        for resource in planned(name)[1].of_type("kubernetes:core/v1:ConfigMap")
        if resource.inputs["metadata"]["namespace"] == pods.NAMESPACE
    ]
    return dict(yaml.safe_load(map_["gateway.yaml"]))


def test_limits_are_divided_among_the_pods_of_the_gateway() -> None:
    read = configuration("full")
    assert read["limits"] == {
        "bodyMib": 4, "answerSeconds": 1800, "tokens": 4000, "queue": 33, "userInFlight": 4, "userPerMinute": 30,
    }  # fmt: skip
    assert read["models"][0] == {
        "id": "chat", "url": "http://serving-serve-svc.serving:8000", "model": "chat", "concurrency": 10,
        "mode": "aggressive",
    }  # fmt: skip
    (front,) = gateway_pod("full")["containers"]
    (mount,) = [mount for mount in front["volumeMounts"] if mount["name"] == "keys"]
    assert read["keysFile"] == f"{mount['mountPath']}/keys"


def test_models_are_llm_configs_of_one_application() -> None:
    config = yaml.safe_load(spec("full")["serveConfigV2"])
    (application,) = config["applications"]
    assert (application["import_path"], application["route_prefix"]) == ("ray.serve.llm:build_openai_app", "/")
    chat, large = application["args"]["llm_configs"]
    assert large["model_loading_config"] == {"model_id": "large", "model_source": "/models/llama/70b"}
    assert large["engine_kwargs"] == {
        "dtype": "bfloat16", "max_model_len": 4096, "max_num_seqs": 4, "tensor_parallel_size": 8,
        "gpu_memory_utilization": 0.7,
    }  # fmt: skip
    # The T4 of one of its pools has no bf16.
    assert chat["engine_kwargs"]["dtype"] == "float16"
    assert chat["engine_kwargs"].items() >= {"quantization": "fp8", "enable_prefix_caching": True}.items()
    scaling = chat["deployment_config"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"], scaling["downscale_delay_s"]) == (3, 5, 3600)


def test_replicas_ask_for_what_pods_of_their_model_alone_have() -> None:
    (application,) = yaml.safe_load(spec("full")["serveConfigV2"])["applications"]
    groups = spec("full")["rayClusterConfig"]["workerGroupSpecs"]
    for model in application["args"]["llm_configs"]:
        bundle = model["placement_group_config"]["bundle_per_worker"]
        (resource,) = bundle.keys() - {"GPU"}
        having = {
            group["labels"]["paddock.model"]
            for group in groups
            if resource in json.loads(json.loads(group["rayStartParams"]["resources"]))
        }
        assert having == {model["model_loading_config"]["model_id"]}


def test_every_argument_of_vllm_is_in_the_dated_list() -> None:
    (application,) = yaml.safe_load(spec("full")["serveConfigV2"])["applications"]
    for model in application["args"]["llm_configs"]:
        for name, value in model["engine_kwargs"].items():
            assert engine_arguments()[name].takes(value)
