"""A plan of a fleet with `serving:`: fit in GPU memory and on nodes, cost, rules, steps, and its text."""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet import FleetError
from paddock.models.presets import preset
from paddock.plan.document.builder import build_document
from paddock.plan.output import markdown
from paddock.plan.plan import Plan, build_plan
from tests.support import documents
from tests.support.fleets import SERVING, fleet_data, stack

TODAY = date(2026, 11, 23)
L4 = {"instances": ["g6.xlarge", "g6.12xlarge"], "capacity": "on-demand", "nodes": {"max": 4}}
CHAT = {
    "model": "qwen3-8b", "checkpoint": "qwen3-8b", "quantization": "fp8", "pools": ["l4"], "replicas": {"max": 2},
}  # fmt: skip


def fleet(*, pool: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    data = fleet_data(pools={"l4": L4 | (pool or {})}, runners={})
    data["cluster"] |= cluster or {}
    return data | {"serving": deepcopy(SERVING) | {"models": {"chat": CHAT | model}}}


def planned(data: dict[str, Any]) -> Plan:
    return build_plan(stack(data), TODAY)


@cache
def plain() -> Plan:
    return planned(fleet())


def serving_ids(plan: Plan) -> dict[str, str]:
    """Severity of each finding on serving, by its id."""
    return {finding.id: finding.severity for finding in plan.findings if finding.id.startswith("SRV")}


def test_example_of_the_page_is_ready(root: Path) -> None:
    page = (root / "docs/serve-kubernetes.md").read_text(encoding="utf-8")
    (excerpt,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    plan = planned(fleet_data(runners={}) | yaml.safe_load(excerpt))

    assert plan.errors == 0
    assert serving_ids(plan) == {"SRV009": "info"}
    assert [fit.per_node for fit in plan.served] == [1, 1, 1]


def test_a_fleet_without_serving_shows_nothing_of_it() -> None:
    document = build_document(planned(fleet_data()))
    assert document.served == []
    assert document.served_fit == []
    assert "erved" not in markdown.render(document).partition("<details>")[0]


def test_memory_is_weights_and_cache_in_the_part_of_vllm() -> None:
    small, _ = plain().served
    model = preset("qwen3-8b")
    assert small.weights_mib == -(-model.loaded_bytes("int8") // 2**20)
    assert small.cache_mib == -(-model.cache_bytes(4096, 2, 4) // 2**20)
    assert small.allowed_mib == int(0.92 * small.gpu_memory_mib)
    assert (small.dtype, small.lacking_mib) == ("fp8", 0)


def test_replicas_fill_a_node_by_its_gpus() -> None:
    assert [(fit.instance, fit.per_node, fit.limiting) for fit in plain().served] == [
        ("g6.xlarge", 1, "gpu"),
        ("g6.12xlarge", 4, "gpu"),
    ]


def test_a_model_beyond_the_memory_of_a_gpu_is_an_error_with_its_fix() -> None:
    large = {"quantization": None, "context": 32768}
    (finding,) = [finding for finding in planned(fleet(**large)).findings if finding.id == "SRV001"]
    assert finding.severity == "error"
    assert "weights 15.3 GiB" in finding.message
    edited = {edit.key[-1]: edit.value for edit in finding.edits}
    assert edited
    assert "SRV001" not in serving_ids(planned(fleet(**large | edited)))


def test_weights_of_unknown_bits_are_no_error() -> None:
    (finding,) = [
        finding
        for finding in planned(fleet(quantization="compressed-tensors", context=32768)).findings
        if finding.id == "SRV001"
    ]
    assert finding.severity == "warning"
    assert "for compressed-tensors does not say how many" in finding.message


@pytest.mark.parametrize(("mode", "fits"), [("aggressive", True), ("default", True), ("conservative", False)])
def test_modes_decide_how_much_memory_a_model_has(mode: str, fits: bool) -> None:
    assert ("SRV001" not in serving_ids(planned(fleet(mode=mode)))) is fits


def test_more_replicas_than_nodes_are_said() -> None:
    assert serving_ids(planned(fleet(replicas={"max": 5})))["SRV003"] == "warning"
    assert serving_ids(planned(fleet(replicas={"min": 5, "max": 5})))["SRV003"] == "error"
    assert "SRV003" not in serving_ids(plain())


def test_models_together_outgrow_their_pool() -> None:
    data = fleet(replicas={"min": 3, "max": 4})
    data["serving"]["models"]["code"] = CHAT | {"replicas": {"min": 2, "max": 4}}
    assert serving_ids(planned(data))["SRV005"] == "error"
    data["serving"]["models"]["code"]["replicas"]["min"] = 0
    assert serving_ids(planned(data))["SRV005"] == "warning"


def test_a_second_cluster_for_a_change_needs_its_nodes() -> None:
    data = fleet(replicas={"min": 3, "max": 4})
    assert serving_ids(planned(data))["SRV006"] == "warning"
    data["serving"]["upgrade"] = "none"
    assert "SRV006" not in serving_ids(planned(data))


def test_a_replica_of_several_gpus_needs_nodes_that_have_them() -> None:
    four = {"instances": ["g6.12xlarge", "g6.24xlarge"]}
    assert not {"SRV002", "SRV004"} & serving_ids(planned(fleet(pool=four, tensorParallel=4))).keys()
    mixed = planned(fleet(tensorParallel=4))
    assert serving_ids(mixed)["SRV004"] == "error"
    (finding,) = [finding for finding in mixed.findings if finding.id == "SRV004"]
    assert "g6.xlarge of pool l4 has 1" in finding.message
    assert "SRV002" not in serving_ids(mixed)


def test_a_head_larger_than_system_nodes_is_an_error() -> None:
    data = fleet()
    data["serving"]["head"] = {"memory": "16Gi"}
    assert serving_ids(planned(data))["SRV008"] == "error"
    data["cluster"]["system"] = {"instances": ["m7i.2xlarge"]}
    assert "SRV008" not in serving_ids(planned(data))


def test_state_of_the_head_is_missed_where_replicas_last() -> None:
    assert serving_ids(plain())["SRV009"] == "info"
    data = fleet(replicas={"min": 1, "max": 2})
    assert serving_ids(planned(data))["SRV009"] == "warning"
    data["serving"]["redis"] = {"address": "rediss://ray.example.com:6379"}
    assert "SRV009" not in serving_ids(planned(data))


@pytest.mark.parametrize(("model", "words"), [
    ({"model": "qwen3-8"}, ['there is no model "qwen3-8"', 'did you mean "qwen3-8b"?']),
    ({"context": 100_000}, ["made for 40960 tokens", "write context: 40960"]),
    ({"tensorParallel": 3}, ["3 does not divide qwen3-8b", "one of 1, 2, 4, 8", "write tensorParallel: 2"]),
])  # fmt: skip
def test_a_model_that_cannot_be_is_refused_with_its_key(model: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FleetError) as refused:
        planned(fleet(**model))
    assert all(word in str(refused.value) for word in (f"serving.models.chat.{next(iter(model))}", *words))


def test_formats_that_a_gpu_lacks_are_refused() -> None:
    data = fleet_data(serving=deepcopy(SERVING))
    data["serving"]["models"]["chat"]["dtype"] = "bf16"
    with pytest.raises(FleetError, match="the NVIDIA T4 of pool t4 has no bf16"):
        planned(data)


@pytest.mark.parametrize(
    ("image", "pool", "severity"),
    [
        (None, {}, None),
        (None, {"instances": ["p3.2xlarge"]}, "error"),
        ("registry.example.com/ray-llm:2.60.0-cu126", {"instances": ["p3.2xlarge"]}, None),
        ("registry.example.com/ray-llm:ours", {}, "info"),
    ],
)
def test_cuda_of_the_image_must_run_on_the_gpus(image: str | None, pool: dict[str, Any], severity: str | None) -> None:
    data = fleet(pool=pool)
    data["serving"]["image"] = image
    assert serving_ids(planned(data)).get("SRV010") == severity


def test_random_weights_are_said() -> None:
    assert "SRV007" not in serving_ids(plain())
    assert serving_ids(planned(fleet(engineArgs={"load_format": "dummy"})))["SRV007"] == "info"


def test_cost_follows_the_replicas() -> None:
    (idle,) = plain().cost.served
    (lasting,) = planned(fleet(replicas={"min": 1, "max": 2})).cost.served
    hour = idle.replica_hour.expected.value
    assert hour is not None
    assert (idle.idle_month.expected.value, idle.most_month.expected.value) == (0, pytest.approx(2 * 730 * hour))
    assert lasting.idle_month.expected.value == pytest.approx(730 * hour)


def test_lasting_replicas_are_part_of_every_month() -> None:
    without, lasting = plain().cost, planned(fleet(replicas={"min": 1, "max": 2})).cost
    for ours, other in ((lasting.month.low, without.month.low), (lasting.month.expected, without.month.expected)):
        assert ours.value is not None
        assert other.value is not None
        assert ours.value > other.value


def test_secrets_of_serving_are_steps_before_up() -> None:
    data = fleet()
    data["serving"] |= {
        "rayToken": "arn:aws:secretsmanager:us-west-2:123456789012:secret:ray",
        "redis": {"address": "rediss://ray.example.com:6379"},
    }
    steps = [step for step in planned(data).before_up if step.id == "CFG008"]
    assert [step.subject for step in steps] == ["paddock:servingKeys", "paddock:redisPassword"]
    assert all("pulumi config set" in step.command for step in steps)


def test_system_pods_count_those_of_serving() -> None:
    (pods,) = [need for need in plain().quota if need.unit == "pod"]
    assert [part.amount for part in pods.parts if part.who == "serving"] == [4]


def test_rules_see_the_pods_of_ray() -> None:
    data = fleet()
    data["serving"]["image"] = "registry.example.com/serve:latest"
    messages = [finding.message for finding in planned(data).findings if finding.id == "PAD032"]
    assert any("ray-head has an image that changes under its name" in message for message in messages)
    assert any("ray-worker has an image that changes under its name" in message for message in messages)
    assert not [finding for finding in plain().findings if finding.id.startswith(("PAD", "CON"))]


def test_document_and_pages_show_served_models() -> None:
    document = build_document(plain())
    data = document.data()
    assert [served["name"] for served in data["served"]] == ["chat"]
    assert data["served_fit"][0]["per_node"] == 1
    assert data["cost"]["served"][0]["most_month"]["expected"]["value"] > 0
    forms = documents.forms(document)
    assert "Served models" in forms["terminal"]
    assert "Cost of served models, USD" in forms["terminal"]
    assert "qwen3-8b fp8" in forms["html"]
    assert "| chat | qwen3-8b fp8 | 0\u20132 | 1 | g6.xlarge: 1, g6.12xlarge: 4 |" in forms["markdown"]
