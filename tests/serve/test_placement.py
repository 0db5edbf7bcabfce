"""Placement: the seed's example, mixes of devices, what does not fit, and what holds for any devices."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.models import config, formula
from paddock.models.model import Model
from paddock.models.presets import PRESETS, preset
from paddock.serve.placement.device import Device
from paddock.serve.placement.memory import MIB
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Infeasible, ModelPlacement
from paddock.serve.placement.request import Policy, Request
from tests.support.explore import examples


def checkpoint(name: str) -> Model:
    """Return a model by name as the checkpoint that it is of."""
    return formula.model(config.of(PRESETS[name], name), name)


EIGHT_B = Request(checkpoint("llama-3.1-8b"))
"""A checkpoint: vLLM's."""
RANDOM = Request(preset("llama-3.1-8b"))
FILE = Request(replace(preset("llama-3.1-8b"), facts="file", tokenizer=True, template=True))
"""A .gguf file of 16 bits."""


def a10g(agent: str, index: int, **changes: Any) -> Device:
    return replace(Device(agent, "cuda", index, 23028, 22500, "NVIDIA A10G", 600.0), **changes)


def t4(agent: str, index: int, **changes: Any) -> Device:
    return replace(Device(agent, "cuda", index, 15360, 14900, "Tesla T4", 320.0, lacks=("bf16",)), **changes)


def mac(agent: str = "mac", mib: int = 36864) -> Device:
    return Device(agent, "metal", 0, mib, mib, "Apple M4 Max", 546.0)


def planned(request: Request, devices: list[Device], policy: Policy | None = None) -> ModelPlacement:
    result = place(request, devices, policy)
    assert isinstance(result, ModelPlacement), result
    return result


def refused(request: Request, devices: list[Device], policy: Policy | None = None) -> Infeasible:
    result = place(request, devices, policy)
    assert isinstance(result, Infeasible), result
    return result


def labels(plan: ModelPlacement) -> list[str]:
    return [placed.device.label for group in plan.groups for placed in group.devices]


def test_two_cuda_devices_serve_and_a_metal_one_is_suggested_for_another_instance() -> None:
    plan = planned(EIGHT_B, [mac(), a10g("box", 1), a10g("box", 0)])
    assert (plan.kind, labels(plan)) == ("HomogeneousCuda", ["box/cuda:0", "box/cuda:1"])
    assert (plan.policy.engine, plan.groups[0].degree, plan.groups[0].dtype) == ("vllm", 2, "bf16")
    (unused,) = plan.unused
    assert (unused.device.label, unused.reason) == ("mac/metal:0", "vLLM computes on CUDA and ROCm")
    assert "of a .gguf file of the model: llama.cpp computes it" in unused.suggestion
    random = planned(RANDOM, [mac(), a10g("box", 1), a10g("box", 0)])
    assert (random.policy.engine, labels(random), random.groups[0].dtype) == ("llama.cpp", labels(plan), "int8")
    (unused,) = random.unused
    assert unused.suggestion == "load another instance here: it fits in int8"
    assert [reason.text for reason in random.reasons if reason.choice == "backend"] == [
        "cuda: most devices (2 cuda, 1 metal)"
    ]


def test_a_reserve_stays_free_on_each_device() -> None:
    (placed,) = planned(EIGHT_B, [a10g("box", 0)], Policy(reserve=0.1)).groups[0].devices
    assert placed.memory.reserve == round(2302.8 * MIB)
    assert placed.allowed == 23028 * MIB - placed.memory.reserve
    assert refused(EIGHT_B, [a10g("box", 0)], Policy(reserve=0.3)).attempts[0].lacking > 0


def test_a_busy_gpu_leaves_the_model_to_the_equal_one_beside_it() -> None:
    plan = planned(EIGHT_B, [a10g("box", 0, free_mib=1000), a10g("box", 1)])
    assert labels(plan) == ["box/cuda:1"]
    assert plan.unused[0].reason.startswith("lacks ")


def test_cuda_wins_a_tie_and_most_devices_win_otherwise() -> None:
    assert planned(FILE, [mac(), a10g("box", 0)]).backend == "cuda"
    macs = planned(FILE, [mac("one"), mac("two"), a10g("box", 0)])
    assert (macs.kind, macs.groups[0].degree) == ("HomogeneousMetal", 1)


def test_a_backend_that_cannot_hold_the_model_gives_way_to_the_next() -> None:
    plan = planned(FILE, [t4("box", 0, free_mib=2000), t4("box", 1, free_mib=2000), mac()])
    assert plan.backend == "metal"
    assert "does not fit on cuda" in next(reason.text for reason in plan.reasons if reason.choice == "backend")
    assert [entry.reason for entry in plan.unused] == ["another backend than metal, and a model runs on one"] * 2


def test_processors_serve_only_where_there_is_no_gpu() -> None:
    processor = Device("box", "cpu", 0, 64000, 60000, "EPYC")
    assert planned(FILE, [processor]).kind == "HomogeneousCpu"
    small = refused(FILE, [processor, t4("box", 0, free_mib=2000)])
    assert "--backend cpu" in [change.flags for change in small.changes]


def test_a_checkpoint_without_a_gpu_is_told_what_converts_it() -> None:
    result = refused(EIGHT_B, [Device("box", "cpu", 0, 64000, 60000, "EPYC"), mac()])
    assert result.reasons[0].text == "vllm computes on none of them: there are 1 metal, 1 cpu"
    assert {entry.reason for entry in result.refused} == {"vLLM computes on CUDA and ROCm"}
    (change,) = result.changes
    assert "convert_hf_to_gguf.py" in change.text


def test_an_engine_that_is_not_built_for_a_device_leaves_it() -> None:
    why = "llama.cpp here is built for the CPU alone"
    box = [a10g("box", 0, without=(("llama.cpp", why),)), Device("box", "cpu", 0, 64000, 60000, "EPYC")]
    plan = planned(FILE, box)
    assert (plan.kind, plan.unused[0].reason) == ("HomogeneousCpu", why)
    assert planned(FILE, box, Policy(server="/opt/llama-server")).kind == "HomogeneousCuda"
    assert planned(EIGHT_B, box).kind == "HomogeneousCuda"
    assert refused(FILE, box[:1]).changes[0].flags == "--server PATH"


def test_unequal_gpus_of_a_machine_do_not_share_a_model() -> None:
    plan = planned(EIGHT_B, [t4("box", 0), t4("box", 1), a10g("box", 2)])
    assert (labels(plan), plan.groups[0].dtype) == (["box/cuda:0", "box/cuda:1"], "fp16")
    assert "640 GB/s" in next(reason.text for reason in plan.reasons if reason.choice == "devices")
    (unused,) = plan.unused
    assert unused.device.label == "box/cuda:2"
    assert unused.reason.startswith("not equal to Tesla T4")


def test_a_format_that_a_gpu_lacks_leaves_it_out() -> None:
    plan = planned(replace(EIGHT_B, dtype="bf16"), [t4("box", 0), t4("box", 1), a10g("box", 2)])
    assert labels(plan) == ["box/cuda:2"]
    assert [entry.reason for entry in plan.unused] == ["computes no bf16"] * 2
    only = refused(replace(EIGHT_B, dtype="bf16"), [t4("box", 0), t4("box", 1)])
    assert only.attempts == ()
    assert only.changes[0].flags == "--dtype fp16"


def test_lost_and_leased_gpus_are_left_with_their_reason() -> None:
    devices = [a10g("box", 0, unavailable="lost: it fell off the bus"), a10g("box", 1), a10g("box", 2), a10g("box", 3)]
    devices[2] = replace(devices[2], unavailable="leased to ci (pid 7)")
    plan = planned(EIGHT_B, devices)
    assert labels(plan) == ["box/cuda:1", "box/cuda:3"]
    assert [entry.reason for entry in plan.unused] == ["lost: it fell off the bus", "leased to ci (pid 7)"]
    gone = refused(EIGHT_B, [devices[0]])
    assert (gone.reasons[0].text, gone.changes) == ("none of the 1 devices is available", ())


def test_a_degree_divides_the_key_value_heads_and_leaves_the_rest_for_another_instance() -> None:
    plan = planned(EIGHT_B, [a10g("box", index) for index in range(7)])
    assert plan.groups[0].degree == 4
    assert [(entry.reason, entry.suggestion) for entry in plan.unused] == [
        ("degree 4 takes 4 devices", "load another instance here: it fits in bf16 over box/cuda:4, box/cuda:5"),
        ("degree 4 takes 4 devices", "load another instance here: it fits in bf16 over box/cuda:4, box/cuda:5"),
        ("degree 4 takes 4 devices", "load another instance here: it fits in bf16"),
    ]
    assert planned(EIGHT_B, [a10g("box", index) for index in range(7)], Policy(tensor_parallel=1)).groups[0].degree == 1


def test_llama_cpp_splits_rows_over_any_number() -> None:
    """Its cache stays on the first device (--split-mode row, --main-gpu)."""
    (group,) = planned(FILE, [a10g("box", index) for index in range(3)]).groups
    assert group.degree == 3
    assert [placed.memory.cache > 0 for placed in group.devices] == [True, False, False]


def test_groups_span_agents_only_where_the_policy_says_so() -> None:
    boxes = [a10g("one", 0, free_mib=14000), a10g("two", 0, free_mib=14000)]
    apart = refused(EIGHT_B, boxes)
    assert "--across-agents" in [change.flags for change in apart.changes]
    plan = planned(EIGHT_B, boxes, Policy(across_agents=True))
    assert (plan.kind, plan.groups[0].degree) == ("HomogeneousCuda", 2)
    assert any("spans agents" in note for note in plan.notes)
    assert "--across-agents" not in [change.flags for change in refused(FILE, boxes).changes]
    assert refused(FILE, boxes, Policy(across_agents=True)).attempts[0].degree == 1


def test_memory_is_that_of_the_engine() -> None:
    def needed(request: Request, **policy: Any) -> float:
        (placed,) = planned(request, [a10g("box", 0)], Policy(**policy)).groups[0].devices
        return placed.memory.weights / 8e9

    assert 2.0 < needed(FILE) < 2.05
    assert 1.06 < needed(replace(FILE, dtype="int8")) < 1.08
    assert 0.56 < needed(replace(FILE, dtype="int4")) < 0.60
    assert needed(RANDOM) == pytest.approx(needed(replace(FILE, dtype="int8")))
    assert 1.0 < needed(EIGHT_B, quantization="fp8") < 1.2
    assert 0.6 < needed(EIGHT_B, quantization="bitsandbytes") < 0.8


def test_what_an_engine_does_beyond_the_plan_is_noted() -> None:
    def notes(request: Request, *devices: Device, **policy: Any) -> str:
        return "; ".join(planned(request, list(devices), Policy(**policy)).notes)

    processor, large = Device("box", "cpu", 0, 64000, 60000, "EPYC"), a10g("box", 0, memory_mib=40000, free_mib=40000)
    assert "vLLM takes 50% of each device" in notes(EIGHT_B, large, reserve=0.5)
    assert "packed in int4 once, on the machine that serves them: 4" in notes(replace(FILE, dtype="int4"), processor)
    assert "keep weights of 4 and 8 bits a second time" in notes(RANDOM, processor)
    assert "a second time" not in notes(FILE, processor)
    assert "the weights are random numbers" in notes(RANDOM, processor)
    bare = replace(FILE, model=replace(FILE.model, template=False))
    assert "no chat template" in notes(bare, processor)


def test_each_change_makes_the_model_fit_and_the_smallest_comes_first() -> None:
    lacking = refused(FILE, [a10g("box", 0, free_mib=18000)])
    (group,) = lacking.attempts
    assert group.devices[0].lacking == group.devices[0].memory.needed - 18000 * MIB
    assert [change.flags.partition(" ")[0] for change in lacking.changes] == [
        "--concurrency", "--context", "--dtype", "--dtype", "",
    ]  # fmt: skip
    for change in lacking.changes:
        flags = change.flags.split()
        values = dict(zip(flags[::2], flags[1::2], strict=True)) if flags else {}
        request = replace(
            FILE,
            dtype=values.get("--dtype"),
            context=int(values.get("--context", FILE.context)),
            concurrency=int(values.get("--concurrency", FILE.concurrency)),
        )
        devices = [a10g("box", 0, free_mib=18000)]
        if not values:
            devices = [a10g("box", index, free_mib=18000) for index in range(int(change.text.split()[0]))]
        assert isinstance(place(request, devices), ModelPlacement), change
    ways = {change.flags for change in refused(EIGHT_B, [a10g("box", 0, free_mib=18000)]).changes}
    assert {"--quantization fp8", "--quantization bitsandbytes"} <= ways


def test_weights_of_a_file_are_not_advised_to_be_packed() -> None:
    model = replace(FILE.model, quantised=True, format="Q8_0")
    small = refused(Request(model), [t4("box", 0, free_mib=4000)])
    assert not any("--dtype" in change.flags for change in small.changes)


NAMES = {"cuda": ("Tesla T4", "NVIDIA A10G"), "rocm": ("MI300X",), "metal": ("M4", None), "cpu": ("EPYC",)}


@st.composite
def devices(draw: st.DrawFn) -> list[Device]:
    places = draw(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from(list(NAMES)), st.integers(0, 7)), unique=True, max_size=10
        )
    )
    drawn = []
    for agent, backend, index in places:
        total = draw(st.sampled_from([8192, 15360, 23028, 81559, 196608]))
        drawn.append(
            Device(
                agent, backend, index, total, draw(st.integers(0, total)), draw(st.sampled_from(NAMES[backend])),  # type: ignore[arg-type]  # drawn of the backends
                draw(st.sampled_from([None, 300.0, 2000.0])), None,
                draw(st.sampled_from([(), ("bf16",)])), draw(st.sampled_from(["", "", "", "lost"])),
            )
        )  # fmt: skip
    return drawn


requests = st.builds(
    Request,
    st.sampled_from([of(name) for name in PRESETS for of in (preset, checkpoint)]),
    st.sampled_from([None, "bf16", "fp32", "int8", "int4"]),
    st.integers(1, 2048),
    st.integers(1, 64),
)
policies = st.builds(
    Policy,
    st.sampled_from([None, None, "cuda", "metal", "cpu"]),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from([1, 2, 64]),
    st.booleans(),
)


@examples(40, 500)
@given(requests, devices(), policies)
def test_any_plan_keeps_to_memory_heads_and_devices(request: Request, available: list[Device], policy: Policy) -> None:
    result = place(request, available, policy)
    if isinstance(result, Infeasible):
        assert all(placed.lacking or group.lacking for group in result.attempts for placed in group.devices)
        return
    for group in result.groups:
        members = {placed.device for placed in group.devices}
        vllm = result.policy.engine == "vllm"
        assert not vllm or request.model.heads % group.degree == request.model.kv_heads % group.degree == 0
        assert group.degree <= policy.tensor_parallel
        assert len({(device.backend, device.name) for device in members}) == 1
        assert (policy.across_agents and vllm) or len({device.agent for device in members}) == 1
        for placed in group.devices:
            memory, device = placed.memory, placed.device
            assert memory.needed + memory.reserve <= (device.memory_mib or 0) * MIB + 1
            assert memory.needed <= (device.free_mib or 0) * MIB
            assert not device.unavailable
            assert not vllm or (group.dtype not in device.lacks and device.backend in ("cuda", "rocm"))
    used = [placed.device for group in result.groups for placed in group.devices]
    unused = [entry.device for entry in result.unused]
    assert sorted([*used, *unused], key=lambda device: device.key) == sorted(available, key=lambda device: device.key)


@examples(30, 300)
@given(requests, devices(), policies, st.randoms())
def test_the_order_of_the_devices_makes_no_difference(
    request: Request, available: list[Device], policy: Policy, order: random.Random
) -> None:
    shuffled = order.sample(available, len(available))
    assert place(request, shuffled, policy) == place(request, available, policy)


@examples(30, 300)
@given(requests, devices(), policies, st.data())
def test_more_memory_never_makes_a_model_infeasible(
    request: Request, available: list[Device], policy: Policy, data: st.DataObject
) -> None:
    if isinstance(place(request, available, policy), ModelPlacement):
        more = [data.draw(st.sampled_from([0, 1000, 50_000])) for _ in available]
        larger = [
            replace(device, memory_mib=(device.memory_mib or 0) + extra, free_mib=(device.free_mib or 0) + extra)
            for device, extra in zip(available, more, strict=True)
        ]
        assert isinstance(place(request, larger, policy), ModelPlacement)
