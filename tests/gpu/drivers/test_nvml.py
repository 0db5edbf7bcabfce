"""NVIDIA GPUs, read by the real nvidia-ml-py from a made-up driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from paddock.catalog import gpus as catalogue
from paddock.gpu import inventory as detect
from paddock.gpu.drivers.nvml import Nvml, NvmlSampler
from paddock.gpu.drivers.nvml_processes import profile
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Gpu, Memory, NvLink
from paddock.gpu.views.gpus import listing
from tests.support.nvml import PROFILES, Driver, Fault, Part, box, card

Install = Callable[[str | Driver], Driver]


def read(**options: bool) -> tuple[Gpu, ...]:
    return Nvml().read(**options).gpus


def test_everything_that_the_driver_reports_of_a_gpu(driver: Install) -> None:
    driver(Driver([card("H100", utilisation=(93, 40), used_mib=70_000, reasons=0x4, corrected=2, dead_links={17})]))
    reading = Nvml().read()
    (gpu,) = reading.gpus
    assert (gpu.uuid, gpu.index, gpu.minor) == ("GPU-00000000-aaaa-bbbb-cccc-000000002330", 0, 0)
    assert (gpu.pci_address, gpu.pci_device_id) == ("0000:04:00.0", "10de:2330")
    assert (gpu.architecture, gpu.compute_capability, gpu.cores) == ("hopper", "9.0", 16896)
    assert gpu.memory == Memory(total=81559, used=70_000, free=11_008, reserved=551)
    assert (gpu.power.draw, gpu.power.limit, gpu.power.min_limit, gpu.power.energy) == (71.432, 700, 200, 5400000.123)
    assert (gpu.clocks.sm, gpu.clocks.max_sm, gpu.clocks.memory) == (345, 1980, 2619)
    assert (gpu.temperature.gpu, gpu.temperature.memory, gpu.temperature.margin) == (34, 41, 53)
    assert (gpu.utilisation.gpu, gpu.utilisation.memory) == (93, 40)
    assert gpu.throttle == ("software-power-cap",)
    assert (gpu.ecc.enabled, gpu.ecc.corrected, gpu.ecc.uncorrected) == (True, 2, 0)
    assert [link.active for link in gpu.nvlinks] == [True] * 17 + [False]
    assert (gpu.numa_node, gpu.cpus[0], gpu.cpus[-1]) == (0, 0, 47)
    assert not gpu.mig.enabled
    assert gpu.processes is None, "not asked for is not the same as none"
    assert (reading.driver and reading.driver.cuda, reading.notes) == ("13.0", ())


@pytest.mark.parametrize("model", ["t4", "a10g", "l4", "l40s", "a100", "h100", "h200", "b200"])
def test_models_are_those_of_the_catalogue(driver: Install, model: str) -> None:
    driver(model)
    (gpu,) = read()
    entry = next(entry for entry in catalogue().values() if entry.pci_device_id == gpu.pci_device_id)
    assert gpu.name == entry.product
    assert (gpu.architecture, gpu.compute_capability) == (entry.architecture, entry.compute_capability)


def test_a_model_nobody_knows_is_read_all_the_same(driver: Install) -> None:
    driver(Driver([card("Vera Z9", reasons=1 << 40, recovery=99)]))
    (gpu,) = read()
    assert (gpu.state, gpu.name, gpu.architecture) == ("ok", "NVIDIA Vera Z9", None)
    assert (gpu.throttle, gpu.recovery_action) == ((), None)


def test_what_a_consumer_card_does_not_have_is_none(driver: Install) -> None:
    driver("rtx 4090")
    (gpu,) = read()
    assert (gpu.serial, gpu.ecc.enabled, gpu.remapped, gpu.mig, gpu.recovery_action) == (None,) * 5
    assert gpu.nvlinks == ()


def test_trouble_that_the_driver_reports(driver: Install) -> None:
    cards = [card("A100", remapped=(3, 1, 1, 0)), card("T4", retired=(2, 1, 1)), card("H100", reasons=0x48, recovery=4)]
    driver(Driver(cards))
    ampere, turing, hopper = read()
    assert (ampere.remapped.correctable, ampere.remapped.pending, ampere.remapped.failed) == (3, True, False)
    assert (turing.retired_pages, turing.retirement_pending, turing.remapped) == (3, True, None)
    assert hopper.throttle == ("hardware-slowdown", "hardware-thermal")
    assert hopper.recovery_action == "drain-and-reset"


def test_one_lost_gpu_hides_no_other(driver: Install) -> None:
    driver("lost")
    inventory = detect.inventory(processes=True, topology=True)
    assert [gpu.state for gpu in inventory.gpus] == ["ok", "ok", "lost", "ok", "ok", "ok", "ok", "ok"]
    assert "fell off the bus" in (inventory.gpus[2].reason or "")
    assert len(inventory.usable) == 7
    assert len(inventory.pairs) == 21


def test_a_gpu_that_needs_a_reset_says_so(driver: Install) -> None:
    driver(Driver([card("H100", faults={"nvmlDeviceGetUtilizationRates": Fault(16)}), card("H100", bus=9)]))
    broken, fine = read()
    assert (broken.state, broken.recovery_action, broken.name) == ("unreadable", "gpu-reset", "NVIDIA H100 80GB HBM3")
    assert fine.state == "ok"


def test_an_old_driver_is_asked_by_its_old_names(driver: Install) -> None:
    old = driver("535")
    gpu = read()[0]
    assert (gpu.throttle, gpu.temperature.gpu, gpu.temperature.margin) == (("idle",), 34, None)
    assert (gpu.recovery_action, gpu.power.draw) == (None, 61.9)
    old.calls.clear()
    read()
    assert "nvmlDeviceGetMarginTemperature" not in old.calls


def test_memory_is_known_where_the_newer_call_fails_as_on_wsl(driver: Install) -> None:
    windows = driver(Driver([card("RTX 4090", faults={"nvmlDeviceGetMemoryInfo_v2": Fault(999)}, used_mib=100)]))
    assert Nvml().read().notes == ()
    windows.calls.clear()
    assert read()[0].memory == Memory(total=24564, used=500, free=24064)
    assert "nvmlDeviceGetMemoryInfo_v2" not in windows.calls, "asked again, though it never works"


def test_a_release_of_nvidia_ml_py_that_lacks_a_function(driver: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    driver("h100")
    monkeypatch.delattr(pynvml, "nvmlDeviceGetMarginTemperature")
    (gpu,) = read()
    assert (gpu.state, gpu.temperature.margin) == ("ok", None)


def test_calls_to_the_driver_stay_few(driver: Install) -> None:
    fake = driver("8xh100")
    first = Nvml().read()
    assert fake.calls.total() <= 8 * 40
    fake.calls.clear()
    assert Nvml().read() == first
    assert fake.calls.total() <= 8 * 20, "what never changes is read once"
    sampler = NvmlSampler()
    sampler.gpus()
    fake.calls.clear()
    sampler.gpus()
    assert fake.calls.total() <= 8 * 7


def test_what_a_gpu_does_not_support_is_asked_once(driver: Install) -> None:
    fake = driver("mixed")
    read()
    fake.calls.clear()
    read()
    assert not {"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMigMode"} & set(fake.calls)


def test_a_sample_has_what_changed_and_only_that_is_read(driver: Install) -> None:
    fake = driver("8xh100")
    sampler = NvmlSampler()
    before = sampler.gpus()
    hot = fake.cards[3]
    hot.temperature, hot.utilisation, hot.draw_mw, hot.uncorrected, hot.recovery = 88, (100, 50), 690_000, 1, 1
    after = sampler.gpus()
    assert (after[3].temperature.gpu, after[3].utilisation.gpu, after[3].power.draw) == (88, 100, 690)
    assert (after[3].ecc.uncorrected, after[3].recovery_action) == (1, "gpu-reset")
    assert after[:3] == sampler.gpus()[:3]
    assert (after[3].serial, after[3].nvlinks) == (before[3].serial, before[3].nvlinks)
    assert after[3].pcie.generation is None
    assert "nvmlDeviceGetPcieThroughput" not in fake.calls
    assert NvmlSampler(pcie=True).gpus()[0].pcie.generation == 5


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_kept_calls_tell_what_the_careful_ones_did(driver: Install, profile: str) -> None:
    fake = driver(profile)
    sampler = NvmlSampler()
    with_care = sampler.gpus()
    fake.calls.clear()
    assert sampler.gpus() == with_care == sampler.gpus()
    assert fake.calls.total() <= 2 * 8 * len(fake.cards) or profile in ("lost", "mig")


def test_what_a_kept_call_no_longer_answers_is_asked_with_care(driver: Install) -> None:
    fake = driver("8xh100")
    sampler = NvmlSampler()
    sampler.gpus()
    fake.cards[0].fields_missing = frozenset({82})
    fake.cards[1].memory_temperature = 60
    fake.cards[2].faults["nvmlDeviceGetUtilizationRates"] = Fault(pynvml.NVML_ERROR_NOT_SUPPORTED)
    fake.cards[3].faults["nvmlDeviceGetClockInfo"] = Fault(pynvml.NVML_ERROR_UNKNOWN, times=1)
    for _ in range(2):
        gpus = sampler.gpus()
        assert [gpu.temperature.memory for gpu in gpus[:3]] == [None, 60, 41]
        assert (gpus[2].utilisation.gpu, gpus[3].utilisation.gpu, gpus[3].clocks.sm) == (None, 0, 345)
        assert {gpu.state for gpu in gpus} == {"ok"}


def test_throughput_is_measured_on_demand(driver: Install) -> None:
    driver("h100")
    sampler = NvmlSampler(pcie=True)
    sampler.gpus()
    pcie = sampler.gpus()[0].pcie
    assert (pcie.sent, pcie.received) == (250, 1500)


def test_a_gpu_lost_between_samples_keeps_its_name_and_may_return(driver: Install) -> None:
    fake = driver("8xh100")
    sampler = NvmlSampler()
    lost_gpu = sampler.gpus()[5]
    fake.cards[5].lost = True
    lost = sampler.gpus()[5]
    assert (lost.state, lost.uuid, lost.serial, lost.memory) == ("lost", lost_gpu.uuid, lost_gpu.serial, None)
    assert [gpu.state for gpu in sampler.gpus()].count("ok") == 7
    fake.cards[5].lost = False
    assert sampler.gpus()[5].state == "ok"


def test_a_driver_unloaded_while_sampling_is_one_clear_error(driver: Install) -> None:
    fake = driver("8xh100")
    sampler = detect.sampler()
    fake.faults["nvmlDeviceGetUtilizationRates"] = Fault(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(GpuError, match="different versions"):
        sampler.read()
    fake.faults.clear()
    assert len(sampler.read().gpus) == 8, "it came back, and is watched again"


def test_a_replaced_gpu_is_recognised_by_its_uuid(driver: Install) -> None:
    fake = driver("mixed")
    assert read()[1].name == "NVIDIA A10G"
    changed = card("L4", uuid="GPU-other", minor=1)
    fake.cards[1].__dict__.update(changed.__dict__)
    assert (read()[1].uuid, read()[1].name) == ("GPU-other", "NVIDIA L4")


def test_mig_devices(driver: Install) -> None:
    fake = driver("mig")
    fake.cards[0].parts[2].processes = ((4242, 512),)
    (gpu,) = read(processes=True)
    assert [part.profile for part in gpu.mig.devices] == ["1g.10gb"] * 7
    assert len({part.uuid for part in gpu.mig.devices}) == 7
    assert (gpu.processes[0].pid, gpu.processes[0].mig_uuid) == (4242, gpu.mig.devices[2].uuid)
    fake.cards[0].parts.pop()
    assert len(NvmlSampler().gpus()[0].mig.devices) == 6, "made anew by somebody since"  # type: ignore[union-attr]


def test_mig_that_could_be_but_is_off_is_no_mig_device(driver: Install) -> None:
    driver(Driver([card("H100", mig=(0, 1), parts=[Part(7)])]))
    (gpu,) = read()
    assert (gpu.mig.enabled, gpu.mig.pending, gpu.mig.devices) == (False, True, ())


@pytest.mark.parametrize(("total_mib", "part_mib", "slices", "compute", "name"), [
    (40536, 4864, 1, 1, "1g.5gb"),
    (81559, 9856, 1, 1, "1g.10gb"),
    (81559, 40448, 3, 3, "3g.40gb"),
    (81559, 20096, 2, 1, "1c.2g.20gb"),
    (143771, 16384, 1, 1, "1g.18gb"),
    (183359, 22528, 1, 1, "1g.23gb"),
])  # fmt: skip
def test_names_of_mig_profiles(total_mib: int, part_mib: int, slices: int, compute: int, name: str) -> None:
    has = SimpleNamespace(memorySizeMB=part_mib, gpuInstanceSliceCount=slices, computeInstanceSliceCount=compute)
    assert profile(has, total_mib << 20) == name


def host(root: Path, *, own_pids: bool = False) -> Path:
    """Return a /proc with one process in it."""
    for pid in ("4242", "self/ns"):
        (root / "proc" / pid).mkdir(parents=True)
    (root / "proc/4242/cmdline").write_bytes(b"/usr/bin/python3\0train.py\0")
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532999]" if own_pids else "pid:[4026531836]")
    return root


def test_processes_have_names_and_appear_once(driver: Install, tmp_path: Path) -> None:
    driver(Driver([card("T4", processes=[(4242, 900)], graphics=[(4242, 900), (7, None)], mps=[(8, 1)])]))
    inventory = detect.inventory(processes=True, root=host(tmp_path))
    running = {process.pid: process for process in inventory.gpus[0].processes or ()}
    assert (running[4242].kind, running[4242].memory, running[4242].name) == ("compute", 900, "python3")
    assert running[4242].user
    assert (running[7].kind, running[7].memory, running[7].name) == ("graphics", None, None)
    assert running[8].kind == "mps"
    assert len(inventory.gpus[0].processes or ()) == 3


def test_host_pids_are_not_named_after_container_processes(driver: Install, tmp_path: Path) -> None:
    driver(Driver([card("T4", processes=[(4242, 900)])]))
    inventory = detect.inventory(processes=True, root=host(tmp_path, own_pids=True))
    (process,) = inventory.gpus[0].processes or ()
    assert (process.pid, process.name, process.user) == (4242, None, None)
    assert any("--pid=host" in note for note in inventory.notes)


def test_processes_that_may_not_be_read_are_not_none(driver: Install) -> None:
    names = [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")]
    driver(Driver([card("T4", faults={name: Fault(4) for name in names})]))
    reading = Nvml().read(processes=True)
    assert reading.gpus[0].processes is None
    assert any("no permission" in note for note in reading.notes)


def test_direct_links_are_counted_by_pair(driver: Install) -> None:
    cards = box("A100", 3)
    cards[0].links_to, cards[1].links_to, cards[2].links_to = [1] * 8 + [2] * 4, [0] * 8 + [2] * 4, [0] * 4 + [1] * 8
    cards[0].dead_links, cards[0].link_errors = frozenset({0}), {3: 5}
    driver(Driver(cards))
    reading = Nvml().read(topology=True)
    assert [(pair.a, pair.b, pair.nvlinks) for pair in reading.pairs] == [(0, 1, 7), (0, 2, 4), (1, 2, 4)]
    assert reading.gpus[0].nvlinks[3] == NvLink(3, True, "gpu", "0000:0c:00.0", 5)


def test_a_switch_joins_every_pair(driver: Install) -> None:
    driver("8xh100")
    pairs = Nvml().read(topology=True).pairs
    assert {pair.nvlinks for pair in pairs} == {18}
    near = {(pair.a, pair.b): (pair.closeness, pair.peer_access) for pair in pairs}
    assert (near[0, 1], near[0, 7]) == (("numa-node", True), ("system", True))


def test_a_driver_without_topology_leaves_it_to_sysfs(driver: Install, tmp_path: Path) -> None:
    fake = driver("mixed")
    fake.faults["nvmlDeviceGetTopologyCommonAncestor"] = Fault(3)
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    assert Nvml(tmp_path).read(topology=True).pairs[0].closeness is None
    for address in ("0000:1e:00.0", "0000:1f:00.0"):
        below = tmp_path / f"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:{address[6]}0.0/{address}"
        below.mkdir(parents=True)
        (bus / address).symlink_to(below)
    assert Nvml(tmp_path).read(topology=True).pairs[0].closeness == "pcie-switch"


def test_a_listing_has_a_line_for_each_mig_part(driver: Callable[[str], Driver]) -> None:
    driver("mig")
    found = detect.inventory()
    parts = [part for gpu in found.gpus if gpu.mig for part in gpu.mig.devices]
    lines = list(listing(found))
    assert parts
    for part in parts:
        assert any(part.profile in line and line.endswith(part.uuid) for line in lines), part
