"""GPUs selected for a request, and the reason for each."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gpu.errors import GpuInputError
from paddock.gpu.health.check import evaluate
from paddock.gpu.health.xid import Event, events
from paddock.gpu.host.kernel_log import Line
from paddock.gpu.leases.lease import Lease, LeasedDevice
from paddock.gpu.leases.manager import NoneFree
from paddock.gpu.leases.request import Request, max_per_task, within_limit
from paddock.gpu.leases.selection import Choice, choose
from paddock.gpu.model import Ecc, Gpu, Inventory, NvLink, Pair, Power, RemappedRows, Utilisation
from tests.support.boxes import MODELS, box, divided, gpu, h100s, lease, pair, process
from tests.support.explore import examples


def indexes(choice: Choice) -> list[int]:
    return [device.index for device in choice.taken]


def reason(choice: Choice, index: int) -> str:
    return next(refused.reason for refused in choice.refused if refused.index == index)


# What holds for every machine and request.

_gpus = st.builds(
    gpu,
    st.just(0),
    st.sampled_from(sorted(MODELS)),
    used=st.sampled_from([0, 0, 9_000]),
    state=st.sampled_from(["ok", "ok", "ok", "lost", "unreadable"]),
    utilisation=st.sampled_from([Utilisation(), Utilisation(0), Utilisation(60)]),
    processes=st.sampled_from([None, (), (), (), (process(77, 300),), (process(4242, 300),)]),
    recovery_action=st.sampled_from([None, "none", "none", "gpu-reset"]),
)


@st.composite
def _machines(draw: st.DrawFn) -> Inventory:
    gpus = []
    for index, card in enumerate(draw(st.lists(_gpus, max_size=6))):
        named = replace(gpu(index), name=card.name, pci_device_id=card.pci_device_id, memory=card.memory)
        changes = {"state": card.state, "processes": card.processes, "recovery_action": card.recovery_action}
        gpus.append(replace(named, utilisation=card.utilisation, **changes))
    if gpus and draw(st.booleans()):
        gpus[-1] = divided(len(gpus) - 1, parts=draw(st.integers(0, 3)))
    closeness = st.sampled_from([None, "pcie-switch", "host-bridge", "system"])
    pairs = [Pair(a.index, b.index, draw(closeness), draw(st.integers(0, 4))) for a, b in combinations(gpus, 2)]
    return box(gpus, pairs if draw(st.booleans()) else ())


_requests = st.builds(
    Request,
    count=st.integers(1, 4),
    min_memory_gib=st.sampled_from([0, 8, 24, 70]),
    max_utilisation=st.none() | st.integers(0, 100),
    prefer=st.sampled_from([(), ("H100",), ("T4", "A10G")]),
    exclude=st.sampled_from([(), ("t4",)]),
    workload=st.sampled_from([None, "training", "inference", "build", "graphics"]),
    share=st.sampled_from([None, None, 0.25, 0.5, 1]),
    near=st.sampled_from(["none", "nvlink", "pcie-switch"]),
)


@st.composite
def _leases(draw: st.DrawFn) -> tuple[Lease, ...]:
    uuids = st.lists(st.integers(0, 5).map(lambda n: f"GPU-{n:08d}-aaaa"), min_size=1, max_size=2, unique=True)
    return tuple(
        lease(*draw(uuids), share=draw(st.sampled_from([None, 0.25, 0.5])), id=f"{n:08d}")
        for n in range(draw(st.integers(0, 3)))
    )


@examples(60, 1000)
@given(_machines(), _requests, _leases())
def test_no_lost_faulty_leased_or_busy_gpu_is_selected(
    machine: Inventory, request: Request, leases: tuple[Lease, ...]
) -> None:
    choice = choose(machine, request, leases)
    assert len(choice.taken) == (request.count if choice.satisfied else 0)
    assert len({device.uuid for device in choice.taken}) == len(choice.taken)
    for selected in choice.taken:
        owner = machine.gpu(selected.uuid)
        assert owner.state == "ok"
        assert owner.recovery_action in {None, "none"}
        held = [
            lease for lease in leases if any(device.uuid in {selected.uuid, selected.gpu} for device in lease.devices)
        ]
        if request.share is None:
            assert not held
            assert selected.uuid != selected.gpu or not owner.processes
        assert math.fsum([lease.share or 1 for lease in held] + [request.share or 1]) <= 1 + 1e-9
    mentioned = {(entry.index, entry.uuid) for entry in (*choice.taken, *choice.refused)}
    assert {(gpu.index, gpu.uuid) for gpu in machine.gpus} <= mentioned, "every GPU has its reason"


@examples(40, 500)
@given(_machines(), _requests, _leases(), st.randoms(use_true_random=False))
def test_the_order_in_which_gpus_and_leases_come_changes_nothing(
    machine: Inventory, request: Request, leases: tuple[Lease, ...], shuffle: random.Random
) -> None:
    gpus, mixed = list(machine.gpus), list(leases)
    shuffle.shuffle(gpus)
    shuffle.shuffle(mixed)
    pairs = tuple(Pair(gpu.b, gpu.a, gpu.closeness, gpu.nvlinks) for gpu in reversed(machine.pairs))
    reordered = choose(replace(machine, gpus=tuple(gpus), pairs=pairs), request, mixed)
    assert reordered.taken == choose(machine, request, leases).taken


@examples(40, 500)
@given(_machines(), _requests, _leases())
def test_waiting_is_hopeless_only_if_an_idle_machine_fails_too(
    machine: Inventory, request: Request, leases: tuple[Lease, ...]
) -> None:
    choice = choose(machine, request, leases)
    free = [replace(gpu, processes=()) for gpu in machine.gpus]
    free = [gpu if gpu.mig else replace(gpu, utilisation=Utilisation(0), memory=_empty(gpu)) for gpu in free]
    at_best = choose(replace(machine, gpus=tuple(free)), request)
    assert not (choice.hopeless and choice.satisfied)
    if choice.hopeless:
        assert not at_best.satisfied or request.max_utilisation is not None
    elif not choice.satisfied and request.max_utilisation is None:
        assert at_best.satisfied


def _empty(gpu: Gpu) -> object:
    return replace(gpu.memory, used=0, free=gpu.memory.total - (gpu.memory.reserved or 0))


# What is refused, and how that is said.


def test_a_lost_gpu_does_not_come_first() -> None:
    """Tools that sort what they could not read put it there."""
    lost = gpu(0, state="lost", reason="GPU is lost", memory=None, utilisation=Utilisation())
    choice = choose(box([lost, gpu(1)]), Request())
    assert indexes(choice) == [1]
    assert reason(choice, 0) == "it is lost: GPU is lost"


@pytest.mark.parametrize(("sick", "expected"), [
    ({"recovery_action": "drain-and-reset"}, "the driver asks for drain-and-reset"),
    ({"remapped": RemappedRows(0, 1, True, False)}, "replaced at the next reset"),
    ({"ecc": Ecc(True, 0, 1, 1, 0)}, "1 uncorrectable memory errors"),
    ({"ecc": Ecc(True, 0, 0, 9, 5)}, "5 uncorrectable errors in the chip's own memory"),
    ({"unread": ("ecc",)}, "the driver fails to tell memory errors"),
    ({"remapped": RemappedRows(0, 9, False, True)}, "found no spare row"),
    ({"retirement_pending": True}, "retired at the next reset"),
    ({"compute_mode": "prohibited"}, "lets no process in"),
    ({"uuid": None}, "no UUID"),
    ({"memory": None}, "its memory is not known"),
    ({"utilisation": Utilisation()}, "its utilisation is not known"),
    ({"utilisation": Utilisation(31)}, "31 % busy, more than 30 %"),
    ({"power": Power()}, "its power limit is not known"),
    ({"power": Power(limit=700)}, "700 W, more than 500 W"),
    ({"processes": (process(77, name="python"),)}, "in use by pid 77 (python)"),
    ({"used": 30_000}, "49.9 GiB of its memory is free, less than 55.0 GiB"),
    ({"used": 9_000, "processes": None}, "its processes cannot be read, and 8.8 GiB"),
])  # fmt: skip
def test_why_a_gpu_may_not_be_had(sick: dict[str, object], expected: str) -> None:
    request = Request(min_memory_gib=55, max_utilisation=30, max_power_w=500)
    whole = {"power": Power(limit=400), **sick}
    choice = choose(box([gpu(0, **whole), gpu(1, power=Power(limit=400))]), request)  # type: ignore[arg-type]
    assert indexes(choice) == [1]
    assert expected in reason(choice, 0)


def test_eight_per_cent_less_than_asked_for_is_the_same() -> None:
    assert choose(box([gpu(0, "a10g")]), Request(min_memory_gib=24)).satisfied
    assert not choose(box([gpu(0, "a10g")]), Request(min_memory_gib=25)).satisfied


def test_an_idle_display_server_does_not_make_a_gpu_busy() -> None:
    processes = (process(900, 4, kind="graphics"),)
    assert choose(box([gpu(0, processes=processes)]), Request()).satisfied
    assert not choose(box([gpu(0, processes=(process(900, 900, kind="graphics"),))]), Request()).satisfied


def test_ones_own_work_on_a_gpu_is_not_in_the_way() -> None:
    machine = box([gpu(0, processes=(process(77),))])
    assert choose(machine, Request(), own=77).satisfied
    assert not choose(machine, Request(), own=78).satisfied


def test_too_few_gpus_give_none_and_tell_the_free_ones_apart() -> None:
    choice = choose(h100s(3), Request(count=3), [lease("GPU-00000001-aaaa")])
    assert choice.taken == ()
    assert choice.why == "3 GPUs requested, and 2 available."
    assert reason(choice, 1) == "leased to ci (python train.py, pid 4242)"
    assert reason(choice, 0) == "free, but not enough with it"


def test_a_machine_without_gpus_says_why() -> None:
    empty = replace(h100s(0), reason="This machine has no GPU: no NVIDIA driver.")
    choice = choose(empty, Request())
    assert (choice.why, choice.hopeless) == ("This machine has no GPU: no NVIDIA driver.", True)


# Sharing.


def test_shares_of_a_gpu_add_up_to_one_and_no_more() -> None:
    sixths = [lease("GPU-00000000-aaaa", share=1 / 6, id=str(n)) for n in range(5)]
    assert choose(h100s(1), Request(share=1 / 6), sixths).satisfied
    full = [*sixths, lease("GPU-00000000-aaaa", share=1 / 6, id="5")]
    assert reason(choose(h100s(1), Request(share=0.01), full), 0).endswith("of it is left, less than 0.01")


def test_a_share_goes_to_an_already_shared_gpu() -> None:
    assert indexes(choose(h100s(3), Request(share=0.25), [lease("GPU-00000002-aaaa", share=0.5)])) == [2]
    whole = choose(h100s(3), Request(), [lease("GPU-00000000-aaaa", share=0.5)])
    assert indexes(whole) == [1]
    assert "shared by" in reason(whole, 0)


def test_a_share_excludes_memory_in_use_or_promised_to_leases() -> None:
    stranger = gpu(0, used=30_000, processes=(process(77, 30_000),))
    half = lease("GPU-00000000-aaaa", share=0.5)
    assert choose(box([stranger]), Request(share=0.5)).satisfied
    assert not choose(box([stranger]), Request(share=0.5), [half]).satisfied
    # The same memory in use by the one who leased it is what was promised.
    assert choose(box([stranger]), Request(share=0.5), [half], descent={77: frozenset({4242})}).satisfied


def test_the_share_itself_must_hold_the_memory_asked_for() -> None:
    choice = choose(h100s(1), Request(share=0.25, min_memory_gib=40))
    assert reason(choice, 0) == "0.25 of its memory is 19.9 GiB, less than 40 GiB"


# MIG.


def test_a_divided_gpu_gives_its_parts_and_not_itself() -> None:
    machine = box([divided(0), gpu(1)])
    choice = choose(machine, Request(mig="1g.10gb"))
    assert [(device.uuid, device.gpu) for device in choice.taken] == [("MIG-0-0", "GPU-00000000-aaaa")]
    assert reason(choice, 0) == "MIG divides it: its parts are leased instead"
    assert indexes(choose(machine, Request())) == [1], "a whole one before a part"
    assert choose(machine, Request(workload="build")).taken[0].uuid == "MIG-0-0", "the smallest that suffices"
    assert choose(machine, Request(count=2)).taken == (), "a process can use one part only"
    assert choose(box([divided(0)]), Request(workload="graphics")).taken == ()


def test_leases_of_a_part_and_of_its_gpu_exclude_each_other() -> None:
    part = replace(lease("x"), devices=(LeasedDevice("MIG-0-0", "GPU-00000000-aaaa"),))
    assert choose(box([divided(0)]), Request(mig="1g.10gb"), [part]).taken[0].uuid == "MIG-0-1"
    # The parts are gone, MIG was switched off; who had one still lives.
    assert not choose(h100s(1), Request(), [part]).satisfied
    assert not choose(box([divided(0)]), Request(mig="1g.10gb"), [lease("GPU-00000000-aaaa")]).satisfied


def test_a_process_in_one_part_leaves_the_others_free() -> None:
    busy = replace(divided(0, 2), processes=(process(77, mig_uuid="MIG-0-0"),))
    assert choose(box([busy]), Request(mig="1g.10gb")).taken[0].uuid == "MIG-0-1"


# Models and workloads.

MIXED = box([gpu(0, "t4"), gpu(1, "h100"), gpu(2, "a10g"), gpu(3, "a100")])


@pytest.mark.parametrize(("request_", "first"), [
    (Request(), 0),
    (Request(workload="training"), 1),
    (Request(workload="inference"), 1),
    (Request(workload="build"), 0),
    (Request(workload="build", min_memory_gib=20), 2),
    (Request(workload="graphics"), 2),
    (Request(prefer=("A10G", "T4")), 2),
    (Request(prefer=("tesla",)), 0),
    (Request(prefer=("a100-40gb",), workload="training"), 3),
    (Request(exclude=("H100",), workload="training"), 3),
    (Request(uuids=("gpu-00000003",)), 3),
])  # fmt: skip
def test_the_model_that_suits(request_: Request, first: int) -> None:
    assert indexes(choose(MIXED, request_)) == [first]


def test_a_model_is_meant_by_whole_words() -> None:
    choice = choose(box([gpu(0, "a10g")]), Request(exclude=("A10",)))
    assert choice.satisfied
    assert choice.notes == ("exclude A10: no GPU of this model is here.",)


def test_an_uncatalogued_model_is_mentioned_and_ranked_by_known_values() -> None:
    choice = choose(box([gpu(0, "odd"), gpu(1, "t4")]), Request(workload="training"))
    assert indexes(choice) == [1]
    only = choose(box([gpu(0, "odd")]), Request(workload="training"))
    assert "not in the catalogue" in only.taken[0].reason


def test_several_gpus_are_of_one_model_where_that_can_be() -> None:
    machine = box([gpu(0, "t4"), gpu(1, "a10g"), gpu(2, "a10g")])
    assert indexes(choose(machine, Request(count=2))) == [1, 2]


def test_a_gpu_with_errors_or_too_hot_comes_last() -> None:
    machine = box([gpu(0, ecc=Ecc(True, 0, 2)), gpu(1, throttle=("hardware-thermal",)), gpu(2)])
    assert indexes(choose(machine, Request())) == [2]


# Topology.


def mesh() -> list[Pair]:
    """p3.16xlarge: quads 0-3 and 4-7, fully linked inside, each with one link to the other quad."""
    double = {(0, 3), (1, 2), (4, 7), (5, 6), (0, 4), (1, 5), (2, 3), (6, 7)}
    single = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    return [
        pair(a, b, "pcie-switch" if a // 2 == b // 2 else "host-bridge" if a // 4 == b // 4 else "system",
             2 if (a, b) in double else 1 if (a, b) in single else 0)
        for a, b in combinations(range(8), 2)
    ]  # fmt: skip


MESH = box(map(gpu, range(8)), mesh())


def links(choice: Choice, pairs: list[Pair]) -> int:
    chosen = set(indexes(choice))
    return sum(pair.nvlinks for pair in pairs if {pair.a, pair.b} <= chosen)


@examples(30, 300)
@given(st.sets(st.integers(0, 7), min_size=2), st.integers(2, 5), st.sampled_from(["none", "nvlink"]))
def test_no_other_subset_has_more_links(free: set[int], count: int, near: str) -> None:
    held = [lease(f"GPU-{n:08d}-aaaa", id=str(n)) for n in range(8) if n not in free]
    choice = choose(MESH, Request(count=count, near=near), held)  # type: ignore[arg-type]
    if not choice.satisfied:
        return
    most = max(
        sum(device.nvlinks for device in MESH.pairs if {device.a, device.b} <= set(some))
        for some in combinations(sorted(free), count)
    )
    assert links(choice, mesh()) == most


def test_near_pcie_switch_takes_two_below_one_switch_or_none() -> None:
    held = [lease("GPU-00000000-aaaa"), lease("GPU-00000002-aaaa", id="b")]
    assert indexes(choose(MESH, Request(count=2, near="pcie-switch"), held)) == [6, 7], "with two links"
    choice = choose(MESH, Request(count=3, near="pcie-switch"))
    assert choice.why == "No 3 GPUs below one PCIe switch are available."
    assert choice.hopeless


def test_waiting_for_a_switch_helps_where_somebody_has_half_of_it() -> None:
    held = [lease(f"GPU-{n:08d}-aaaa", id=str(n)) for n in (0, 2, 4, 6)]
    choice = choose(MESH, Request(count=2, near="pcie-switch"), held)
    assert (choice.satisfied, choice.hopeless) == (False, False)


def test_an_unknown_topology_is_said_and_satisfies_no_wish_for_nearness() -> None:
    choice = choose(h100s(4), Request(count=2, near="nvlink"))
    assert choice.why == "No 2 GPUs of one NVLink island are available: how they are connected is not known here."
    assert choose(h100s(4), Request(count=2)).notes == (
        "How the GPUs are connected is not known here, so it did not count.",
    )


def test_gpus_with_most_links_must_be_connected_to_each_other() -> None:
    chain = {(0, 1): 4, (1, 2): 1, (2, 3): 1, (3, 4): 4}
    pairs = [pair(a, b, "system", chain.get((a, b), 0)) for a, b in combinations(range(5), 2)]
    assert indexes(choose(box(map(gpu, range(5)), pairs), Request(count=4, near="nvlink"))) == [0, 1, 2, 3]


def test_an_island_that_is_too_small_is_passed_over() -> None:
    islands = [pair(a, b, "system", 4 if a < 2 and b < 2 else 4 if a > 1 else 0) for a, b in combinations(range(5), 2)]
    assert indexes(choose(box(map(gpu, range(5)), islands), Request(count=3, near="nvlink"))) == [2, 3, 4]


def test_a_choice_among_very_many_gpus_stays_on_one_island() -> None:
    islands = [pair(a, b, "system", 18 if a // 4 == b // 4 else 0) for a, b in combinations(range(20), 2)]
    held = [lease(f"GPU-{n:08d}-aaaa", id=str(n)) for n in range(0, 16, 4)]
    assert indexes(choose(box(map(gpu, range(20)), islands), Request(count=4, near="nvlink"), held)) == [16, 17, 18, 19]


# The request itself.


@pytest.mark.parametrize(("wrong", "expected"), [
    ({"count": 0}, "count is 0"),
    ({"count": True}, "count is True"),
    ({"min_memory_gib": math.nan}, "min_memory_gib is nan"),
    ({"min_memory_gib": None}, "min_memory_gib is None"),
    ({"share": 0}, "above 0 and at most 1"),
    ({"share": 1.01}, "above 0 and at most 1"),
    ({"max_utilisation": 101}, "0 to 100"),
    ({"workload": "trainig"}, "one of training, inference, build, graphics"),
    ({"near": "nvswitch"}, "one of none, nvlink, pcie-switch"),
    ({"mig": "1g.10gb", "count": 2}, "a process can use one part only"),
    ({"uuids": ["GPU-1"], "count": 2}, "at most 1"),
    ({"prefer": 3}, "prefer is 3\n    expected: a list of names"),
    ({"gpus": 2}, "a request for GPUs has no 'gpus'"),
    ({"RequiredGPUs": 2, "count": 2}, "says count twice"),
    ({"minMemoryGB": 8}, "did you mean MinMemoryGB?"),
])  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(wrong: dict[str, object], expected: str) -> None:
    with pytest.raises(GpuInputError, match="\n    expected: ") as caught:
        Request.from_dict(wrong)
    assert expected in str(caught.value)


def test_the_older_connectors_names_are_understood() -> None:
    fields = {"MinMemoryGB": 8.0, "RequiredGPUs": 1, "WorkloadType": "ml", "PreferredModels": ["RTX", "Tesla"]}
    assert Request.from_dict(fields) == Request(min_memory_gib=8.0, workload="training", prefer=("RTX", "Tesla"))


def test_a_task_gets_no_more_gpus_than_it_may_have() -> None:
    assert max_per_task({}) == 8
    with pytest.raises(GpuInputError, match="at most 2"):
        within_limit(Request(count=3), {"PADDOCK_MAX_GPUS_PER_TASK": "2"})
    with pytest.raises(GpuInputError, match="PADDOCK_MAX_GPUS_PER_TASK is 'many'"):
        max_per_task({"PADDOCK_MAX_GPUS_PER_TASK": "many"})


# Health.

_XID_95 = "NVRM: Xid (PCI:0000:04:00): 95, Uncontained ECC error"
_SXID = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def _logged(*lines: str) -> tuple[Event, ...]:
    return events(Line(None, line) for line in lines)


def test_a_gpu_with_a_fatal_xid_is_refused_by_name_and_reason() -> None:
    choice = choose(h100s(2), Request(count=2), xids=_logged(_XID_95))
    assert not choice.satisfied
    assert (choice.refused[0].unhealthy, choice.hopeless) == (True, True)
    message = str(NoneFree(choice))
    assert "GPU 0 (GPU-00000000-aaaa): Xid 95: " in message
    assert "--accept-degraded takes them as they are" in message
    assert indexes(choose(h100s(2), Request(), xids=_logged(_XID_95))) == [1]


def test_unhealthy_gpus_are_accepted_after_those_that_are_well() -> None:
    sick = box([gpu(0, ecc=Ecc(True, 0, 3, 3, 0)), gpu(1)])
    assert indexes(choose(sick, Request(accept_degraded=True))) == [1]
    both = choose(sick, Request(count=2, accept_degraded=True))
    assert indexes(both) == [0, 1]
    assert "accepted although 3 uncorrectable memory errors" in both.taken[0].reason
    lost = box([gpu(0, state="lost"), gpu(1)])
    assert not choose(lost, Request(count=2, accept_degraded=True)).satisfied, "it does not answer, whoever accepts it"


def test_a_fatal_sxid_concerns_the_gpus_on_switches() -> None:
    links = (NvLink(0, True, "switch"),)
    joined = box([gpu(0, nvlinks=links), gpu(1, nvlinks=links), gpu(2)])
    assert indexes(choose(joined, Request(), xids=_logged(_SXID))) == [2]
    not_fatal = _SXID.replace("Fatal", "Non-fatal")
    assert indexes(choose(joined, Request(count=3), xids=_logged(not_fatal))) == [0, 1, 2]


def test_a_gpu_whose_driver_shows_no_fault_is_still_leased() -> None:
    """A virtual GPU reports none of the counters, and health calls it unknown."""
    assert evaluate(h100s(1)).verdict == "unknown"
    assert choose(h100s(1), Request()).satisfied
