"""Made-up fleets for hypothesis: small, so that one is planned in a fifth of a second, and of every form in any mix."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True).filter(lambda name: name not in _YAML_WORDS)
LABELS = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9])?", fullmatch=True)
_MODELS = (
    ("g4dn.xlarge", "g4dn.2xlarge", "g4dn.12xlarge"),
    ("g5.xlarge", "g5.12xlarge"),
    ("g6.xlarge", "g6.2xlarge"),
    ("p3.2xlarge", "p3.8xlarge"),
    ("p4d.24xlarge",),
    ("p5.48xlarge",),
)
_MIG = {"p4d.24xlarge": "1g.5gb", "p5.48xlarge": "1g.10gb"}
_RESERVATION = "cr-0123456789abcdef0"

UNSEEN = ("\x00", "\x1b[2J", "\x7f", "\x9b31m", "\u200b", "\u202e", "\u2066", "\u2028", "\ufeff", "\ud800")
"""Characters that steer a terminal, turn a line around, hide, or cannot be encoded."""
HOSTILE_TEXTS = st.one_of(
    st.builds(lambda start, char, end: f"{start}{char}{end}", LABELS, st.sampled_from(UNSEEN), LABELS),
    st.integers(33_000, 50_000).map(lambda length: "x" * length),
    st.sampled_from(["", " ", "a\nb", "a\r\nb", "{{ .Values.x }}", 'a"b', "a'b", "`id`", "$(id)", "../..", "//a/./b/"]),
)


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a dictionary with any of these keys."""
    return st.fixed_dictionaries({}, optional=optional)


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    model = draw(st.sampled_from(_MODELS))
    bought = draw(st.sampled_from(["spot", "fallback", "on-demand", "reserved", "block"]))
    block = model[0].startswith("p")
    ways: dict[str, dict[str, Any]] = {
        "spot": {"capacity": "spot"},
        "fallback": {"capacity": "spot", "fallback": "on-demand"},
        "on-demand": {"capacity": "on-demand"},
        "reserved": {"capacity": {"reserved": _RESERVATION}},
        "block": {"capacity": {"capacityBlock": _RESERVATION} if block else "on-demand"},
    }
    reserved = bought in ("reserved", "block")
    instances = [model[0]] if reserved else draw(st.lists(st.sampled_from(model), min_size=1, max_size=2, unique=True))
    least = draw(st.integers(0, 2))
    image = draw(st.sampled_from([{}, {}, {"ami": {"bottlerocket": "1.62.0-1e8d1a37"}}, _OWN_IMAGE]))
    shared: list[Any] = ["none", "none", {"timeSlicing": 2}, {"mps": 3}]
    if model[0] in _MIG:
        shared.append({"mig": _MIG[model[0]]})
    sharing = {"sharing": "none" if "bottlerocket" in str(image) else draw(st.sampled_from(shared))}
    return {
        "instances": instances,
        "nodes": {"min": least, "max": least + draw(st.integers(1, 3))},
        **ways[bought],
        **image,
        **sharing,
        **draw(
            some(
                nvme=st.sampled_from(["auto", "none"]),
                repair=st.booleans(),
                update=st.just({"strategy": "minimal", "maxUnavailable": 2}),
                labels=st.dictionaries(LABELS, LABELS, max_size=2),
                disk=st.just({"size": "300Gi", "iops": 4000, "throughput": 500}),
                maxPods=st.integers(24, 60),
            )
        ),
    }


_OWN_IMAGE = {"ami": {"custom": "ami-0123456789abcdef0", "driver": "580.159.03", "kubernetes": "1.35"}}

VOLUMES = st.dictionaries(
    NAMES,
    st.sampled_from(
        [
            {"scratch": "2Gi", "mount": "/scratch"},
            {"scratch": "1Gi", "mount": "/fast", "medium": "memory"},
            {"claim": "models", "mount": "/models", "readOnly": True},
            {"volume": "20Gi", "mount": "/data"},
        ]
    ),
    max_size=2,
)


def runners(pool_names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"pool": st.sampled_from(pool_names)},
        optional={
            "gpus": st.sampled_from([1, 1, 2, 4, 8]),
            "labels": st.lists(LABELS, min_size=1, max_size=3, unique=True),
            "name": NAMES,
            "min": st.integers(0, 2),
            "max": st.integers(2, 5),
            "container": st.sampled_from(["none", "dind", "kubernetes-novolume"]),
            "priority": st.integers(-5, 5),
            "warm": st.lists(st.just({"at": "0 8 * * 1-5", "min": 1}), max_size=2),
            "environment": st.dictionaries(st.sampled_from(["CI", "PADDOCK_GPUS", "DOCKER_HOST"]), LABELS, max_size=2),
            "volumes": VOLUMES,
            "shm": st.just("1Gi"),
        },
    )


def serving(pool_names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    replicas = st.integers(0, 3).flatmap(
        lambda least: st.fixed_dictionaries({"min": st.just(least), "max": st.integers(max(1, least), least + 4)})
    )
    model = st.fixed_dictionaries(
        {
            "model": st.sampled_from(["qwen3-0.6b", "llama-3.1-8b", "llama-3.1-70b"]),
            "pools": st.lists(st.sampled_from(pool_names), min_size=1, max_size=2, unique=True),
        },
        optional={
            "dtype": st.sampled_from(["fp16", "int8"]),
            "tensorParallel": st.sampled_from([1, 1, 2]),
            "replicas": replicas,
            "context": st.sampled_from([256, 32768]),
            "concurrency": st.integers(1, 16),
            "mode": st.sampled_from(["conservative", "default", "aggressive"]),
        },
    )
    return st.fixed_dictionaries(
        {
            "image": st.just("registry.example.com/serve@sha256:" + "0" * 64),
            "models": st.dictionaries(NAMES, model, min_size=1, max_size=2),
        },
        optional={
            "redis": st.just({"address": "rediss://ray.example.com:6379"}),
            "clients": st.just(["web"]),
            "rayToken": st.sampled_from(["config", "kubernetes:ours"]),
            "upgrade": st.sampled_from(["new-cluster", "none"]),
            "head": st.sampled_from([{"memory": "2Gi"}, {"cpu": 8}]),
        },
    )


_VPC = {
    "existing": {"vpc": "vpc-0123456789abcdef0", "subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]}
}
_KEY = "arn:aws:secretsmanager:us-west-2:123456789012:secret:key"
NETWORKS = st.one_of(
    st.just(_VPC),
    st.fixed_dictionaries(
        {"zones": st.just(2)},
        optional={
            "nat": st.sampled_from(["single", "per-zone", "none"]),
            "endpoints": st.lists(st.sampled_from(["ecr.api", "sts"]), unique=True, max_size=2),
            "egress": st.just({"allow": ["10.20.0.0/16"]}),
        },
    ),
)
CLUSTERS = st.one_of(
    st.fixed_dictionaries(
        {"version": st.just("1.35")},
        optional={
            "endpoint": st.sampled_from([{"allow": ["203.0.113.0/24"]}, {"allow": "any"}]),
            "metricsServer": st.booleans(),
            "access": st.dictionaries(
                NAMES,
                st.fixed_dictionaries(
                    {
                        "principal": st.just("arn:aws:iam::123456789012:role/Ops"),
                        "policy": st.sampled_from(["cluster-admin", "admin", "edit", "view"]),
                    }
                ),
                max_size=2,
            ),
        },
    ),
    st.just({"existing": "shared", "version": "1.35"}),
    st.just({"kubeconfig": "~/.kube/config", "version": "1.35"}),
)
GITHUBS = st.sampled_from(
    [
        {"url": "https://github.com/acme", "app": {"id": "12345", "installation": "678"}},
        {"url": "https://github.com/acme", "app": {"id": "12345", "installation": "678", "key": _KEY}},
        {"url": "https://github.com/acme/app", "token": "config"},
        {"url": "https://github.com/acme", "token": "kubernetes:ours"},
    ]
)
LAYERS = st.sampled_from(
    [
        {"images": "none"},
        {"images": "none", "runners": "none"},
        {"images": "none", "cluster": "acme/paddock/base"},
        {"runners": "none"},
        {},
    ]
)


MONITORING = st.sampled_from(
    [
        {"enabled": False},
        {"enabled": True},
        {"enabled": True, "rules": "prometheus-rule", "serviceMonitor": True},
        {"enabled": True, "prometheus": {}, "dashboards": True},
        {"enabled": True, "cloudwatch": {}},
    ]
)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, Any]:
    """Return a fleet as a stack file has it. Nearly all are valid; a few hold what only the cross-checks refuse."""
    pool_values = draw(st.dictionaries(NAMES, pools(), min_size=1, max_size=2))
    served = draw(st.one_of(st.none(), st.none(), serving(sorted(pool_values))))
    return {
        **({"serving": served} if served else {}),
        "github": draw(GITHUBS),
        "network": draw(NETWORKS),
        "cluster": draw(CLUSTERS),
        "pools": pool_values,
        "runners": draw(st.dictionaries(NAMES, runners(sorted(pool_values)), max_size=2)),
        "images": {"repositories": ["runner"], "ami": {"enabled": draw(st.booleans())}},
        "monitoring": draw(MONITORING),
        "logs": draw(st.sampled_from([{}, {"jobs": {"to": "cloudwatch"}}])),
        "layers": draw(LAYERS),
        "tags": draw(st.sampled_from([{}, {"team": "ml"}])),
    }
