"""Applications of a RayService, as the fleet's program writes them and Ray Serve reads them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.support.packages import need

need("prometheus_client")

from infra.serving.ray_service import serve_config
from paddock.serve.admission.limits import MIB, Limits
from paddock.serve.deployment import kuberay
from paddock.serve.errors import ServeInputError
from tests.support.fleets import SERVING, fleet_data, stack


def config(serving: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    models = {"chat": SERVING["models"]["chat"] | model}
    pools = {"t4": {"instances": ["g4dn.12xlarge"], "nodes": {"max": 4}}}
    section = SERVING | {"models": models} | (serving or {})
    fleet = stack(fleet_data(pools=pools, runners={}, serving=section)).fleet
    assert fleet.serving is not None
    return serve_config(fleet, fleet.serving)


def test_import_paths_name_functions_of_the_image() -> None:
    for application in config()["applications"]:
        module, _, name = application["import_path"].partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_arguments_of_the_program_are_understood() -> None:
    model, gateway = (application["args"] for application in config(replicas={"min": 1, "max": 2})["applications"])
    assert kuberay.ModelArguments.model_validate(model).id == "chat"
    assert [entry.id for entry in kuberay.GatewayArguments.model_validate(gateway).models] == ["chat"]


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ({}, Limits()),
        (
            {"body": "16Mi", "tokens": 512, "userRequests": 2, "userRequestsPerMinute": 30},
            Limits(None, 2, 30, 16 * MIB, 512),
        ),
    ],
)
def test_limits_of_the_fleet_are_those_of_the_gateway(written: dict[str, Any], limits: Limits) -> None:
    _, gateway = (application["args"] for application in config({"limits": written})["applications"])
    assert kuberay.GatewayArguments.model_validate(gateway).limits.limits() == limits


def test_ray_serve_takes_the_configuration() -> None:
    need("ray")
    from ray.serve import schema
    from ray.serve.config import AutoscalingConfig

    parsed = schema.ServeDeploySchema.model_validate(config(replicas={"min": 0, "max": 3}))
    (replica,) = parsed.applications[0].deployments
    assert replica.autoscaling_config["max_replicas"] == 3
    assert AutoscalingConfig.model_validate(replica.autoscaling_config).min_replicas == 0


def test_a_replica_of_several_gpus_is_a_gang_in_one_pod() -> None:
    need("ray")
    from ray.serve import schema

    written = config(tensorParallel=4)
    parsed = schema.ServeDeploySchema.model_validate(written)
    (replica,) = parsed.applications[0].deployments
    assert [bundle["GPU"] for bundle in replica.placement_group_bundles] == [1] * 4
    assert replica.placement_group_strategy == "STRICT_PACK"
    assert replica.placement_group_bundle_label_selector == [{"paddock.model": "chat"}]
    built = kuberay.model(written["applications"][0]["args"])
    assert len(built._bound_deployment.init_args[1]) == 4


def test_arguments_of_another_version_are_refused() -> None:
    need("ray")
    with pytest.raises(ServeInputError, match=r"args\.speed"):
        kuberay.model(config()["applications"][0]["args"] | {"speed": 1})


@pytest.mark.parametrize(
    ("status", "replicas", "state"),
    [
        ("RUNNING", {}, "serving"),
        ("RUNNING", {"RUNNING": 2}, "serving"),
        ("UNHEALTHY", {"RUNNING": 1, "STARTING": 1}, "serving"),
        ("UNHEALTHY", {"STARTING": 1}, "loading"),
        ("DEPLOY_FAILED", {"RUNNING": 1, "STOPPING": 1}, "serving"),
        ("DEPLOY_FAILED", {"STARTING": 1}, "failed"),
        ("DEPLOYING", {"STARTING": 1}, "loading"),
        ("DELETING", {"RUNNING": 1}, "loading"),
        (None, {}, "loading"),
    ],
)
def test_a_model_serves_while_one_of_its_replicas_does(
    status: str | None, replicas: dict[str, int], state: str
) -> None:
    need("ray")
    from ray.serve import schema
    from ray.serve._private import common

    application = None
    if status is not None:
        states = {common.ReplicaState(name): count for name, count in replicas.items()}
        deployment = schema.DeploymentStatusOverview(
            common.DeploymentStatus.UPDATING, common.DeploymentStatusTrigger.UNSPECIFIED, states, ""
        )
        application = schema.ApplicationStatusOverview(
            schema.ApplicationStatus(status), "", 0.0, {"replica": deployment}
        )
    assert kuberay.state_of(application) == state
