"""Fleets for tests: one for each thing a fleet can be, small enough to be planned in a blink."""

from __future__ import annotations

import gc
import json
import textwrap
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from paddock.fleet import Fleet, Stack, load, parse
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("dev", "prod")
"""The stacks that stand in the repository."""

_GITHUB = {"url": "https://github.com/acme", "app": {"id": "12345", "installation": "678"}}
_T4 = {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}}
_EKS = {"existing": "shared", "version": "1.35"}
_VPC = {
    "existing": {"vpc": "vpc-0123456789abcdef0", "subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]}
}


def fleet_data(**parts: Any) -> dict[str, Any]:
    """Return a fleet as a stack file has it: one spot pool, one runner, and what `parts` say instead."""
    return {
        "github": _GITHUB,
        "cluster": {"version": "1.35", "endpoint": {"allow": ["203.0.113.0/24"]}},
        "network": {"zones": 2},
        "pools": {"t4": _T4},
        "runners": {"gpu": {"pool": "t4"}},
        "images": {"repositories": ["runner-gpu"]},
    } | deepcopy(parts)


def _pool(**settings: Any) -> dict[str, Any]:
    return {"pools": {"t4": _T4 | settings}}


def _runner(**settings: Any) -> dict[str, Any]:
    return {"runners": {"gpu": {"pool": "t4"} | settings}}


SERVING: dict[str, Any] = {
    "gateway": {"image": "registry.example.com/gateway@sha256:" + "0" * 64},
    "weights": "checkpoints",
    "models": {"chat": {"model": "qwen3-0.6b", "checkpoint": "qwen3-0.6b", "pools": ["t4"]}},
}
"""The least of `serving:`. No sample has it: KubeRay's chart is not among the reference data."""


def serve(stack: Path) -> None:
    """Append the least of `serving:` to a stack file that ends in its fleet."""
    text = textwrap.indent(yaml.safe_dump({"serving": SERVING}), "    ")
    stack.write_text(f"{stack.read_text(encoding='utf-8').rstrip()}\n{text}", encoding="utf-8")


SAMPLES: Mapping[str, dict[str, Any]] = {
    "smallest": fleet_data(),
    "t4-on-own-disk": fleet_data(**_pool(nvme="none", disk={"size": "300Gi", "iops": 4000, "throughput": 250})),
    "on-demand": fleet_data(**_pool(capacity="on-demand", nodes={"min": 1, "max": 2})),
    "spot-with-fallback": fleet_data(
        **_pool(fallback="on-demand", instances=["g4dn.xlarge", "g4dn.2xlarge"], nodes={"min": 1, "max": 2})
    ),
    "reserved": fleet_data(**_pool(capacity={"reserved": "cr-0123456789abcdef0"})),
    "capacity-block": fleet_data(
        pools={
            "h100": {
                "instances": ["p5.48xlarge"],
                "capacity": {"capacityBlock": "cr-0123456789abcdef0"},
                "nodes": {"max": 1},
            }
        },
        runners={"gpu": {"pool": "h100", "gpus": 8}},
    ),
    "bottlerocket": fleet_data(**_pool(ami={"bottlerocket": "1.62.0-1e8d1a37"})),
    "custom-image": fleet_data(
        **_pool(ami={"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.35"})
    ),
    "time-slicing": fleet_data(**_pool(sharing={"timeSlicing": 4})),
    "mps": fleet_data(**_pool(sharing={"mps": 4})),
    "mig": fleet_data(
        pools={
            "a100": {
                "instances": ["p4d.24xlarge"],
                "capacity": "on-demand",
                "nodes": {"max": 1},
                "sharing": {"mig": "1g.5gb"},
                "update": {"strategy": "minimal"},
            }
        },
        runners={"gpu": {"pool": "a100"}},
    ),
    "docker": fleet_data(**_runner(container="dind")),
    "job-pods": fleet_data(
        **_runner(
            container="kubernetes-novolume",
            environment={"CCACHE_DIR": "/cache"},
            volumes={"work": {"scratch": "5Gi", "mount": "/cache"}},
        )
    ),
    "every-volume": fleet_data(
        **_runner(
            volumes={
                "scratch": {"scratch": "5Gi", "mount": "/scratch"},
                "fast": {"scratch": "1Gi", "mount": "/fast", "medium": "memory"},
                "models": {"claim": "model-cache", "mount": "/models", "readOnly": True},
                "data": {"volume": "50Gi", "mount": "/data"},
            }
        )
    ),
    "warm": fleet_data(
        **_runner(name="a" * 45, max=3, priority=5, warm=[{"at": f"{n} 8 * * 1-5", "min": n % 3} for n in range(12)])
    ),
    "token": fleet_data(github={"url": "https://github.com/acme/app", "token": "config"}),
    "foreign-secret": fleet_data(github={"url": "https://github.com/acme", "token": "kubernetes:our-token"}),
    "private": fleet_data(
        cluster={
            "version": "1.35",
            "access": {
                "ops": {
                    "principal": "arn:aws:iam::123456789012:role/Ops",
                    "policy": "edit",
                    "namespaces": ["arc-runners"],
                }
            },
        },
        network={
            "zones": 2,
            "nat": "none",
            "endpoints": ["ecr.api", "ecr.dkr", "sts", "logs", "ec2", "eks", "eks-auth", "autoscaling", "ssm"],
        },
    ),
    "existing-network": fleet_data(network=_VPC),
    "existing-cluster": fleet_data(
        cluster=_EKS, network=_VPC, **_runner(volumes={"data": {"volume": "50Gi", "mount": "/data"}})
    ),
    "adopted-own-image": fleet_data(
        cluster=_EKS,
        network=_VPC,
        **_pool(ami={"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.35"}),
    ),
    "any-cluster": fleet_data(
        cluster={"kubeconfig": "~/.kube/config", "context": "lab"}, **_pool(labels={"lab": "yes"})
    ),
    "images": fleet_data(
        images={
            "repositories": ["runner-gpu", "team/cuda"],
            "push": {"repository": "acme/images", "branch": "main"},
            "ami": {"enabled": True, "schedule": "cron(0 6 ? * mon *)"},
        }
    ),
    "monitoring": fleet_data(
        monitoring={"enabled": True, "rules": "prometheus-rule", "serviceMonitor": True}, tags={"team": "ml"}
    ),
    "prometheus": fleet_data(monitoring={"enabled": True, "prometheus": {"clients": ["grafana"]}, "dashboards": True}),
    "cloudwatch": fleet_data(
        monitoring={"enabled": True, "cloudwatch": {"topic": "arn:aws:sns:us-west-2:123456789012:on-call"}}
    ),
    "job-logs": fleet_data(
        runners={"gpu": {"pool": "t4", "container": "dind"}, "job": {"pool": "t4", "container": "kubernetes-novolume"}},
        logs={"jobs": {"to": "cloudwatch"}},
    ),
    "runners-only": fleet_data(layers={"images": "none", "cluster": "acme/paddock/base", "runners": "here"}),
    "images-only": fleet_data(
        layers={"images": "here", "cluster": "none", "runners": "none"},
        images={"repositories": ["runner-gpu"], "ami": {"enabled": True}},
    ),
}
"""Every form that a part of the model can take, in one fleet or another."""


def stack(data: Mapping[str, Any], name: str = "sample") -> Stack:
    """Return a stack of this fleet, without a file. Raises FleetError like the loader."""
    config = {"aws:region": "us-west-2", "paddock:fleet": json.dumps(data)}
    fleet: Fleet = parse(config, "paddock", name)
    return Stack("paddock", name, Path(f"Pulumi.{name}.yaml"), fleet, config, frozenset())


def changed(pool: Mapping[str, Any] | None = None, runner: Mapping[str, Any] | None = None, **parts: Any) -> Fleet:
    """Return the fleet of `fleet_data` with other settings of its pool and its runner."""
    data = deepcopy(fleet_data(**parts))
    for kind, name, settings in (("pools", "t4", pool), ("runners", "gpu", runner)):
        if settings:
            data[kind][name] |= settings
    return stack(data).fleet


def example(name: str) -> Stack:
    """Return an example stack of the repository."""
    return load(ROOT, name)


def named(name: str) -> Stack:
    """Return an example stack, or a sample."""
    return example(name) if name in EXAMPLES else stack(SAMPLES[name], name)


ALL = (*EXAMPLES, *SAMPLES)
_graphs: dict[tuple[str, bool], Graph] = {}


def graph(name: str, *, preview: bool = False) -> Graph:
    """Graph of an example or a sample; made once, as many tests look at it."""
    key = (name, preview)
    if not _graphs:
        # The SDKs are a million objects that stay, loaded by the first plan: frozen, no collection walks over them
        # again, which is a third of the time of every plan after it.
        _graphs["smallest", False] = plan_graph(named("smallest"))
        gc.freeze()
    if key not in _graphs:
        _graphs[key] = plan_graph(named(name), preview=preview)
    return _graphs[key]
