"""The metrics: text that Prometheus takes, by the names that dashboards ask for, and never more than the driver bears.

prometheus_client is not among what the tests install, so the text is parsed here by the format's own rules.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from paddock.gpu import inventory as detect
from paddock.gpu.errors import GpuInputError
from paddock.gpu.health.check import VERDICTS, evaluate
from paddock.gpu.health.xid import XidEvent
from paddock.gpu.inventory import Sampler
from paddock.gpu.model import Gpu, Inventory, Machine, Memory, Mig, MigDevice
from paddock.gpu.monitoring.metrics import METRICS, render
from paddock.gpu.monitoring.prometheus import Exporter, Server, write
from tests.gpu.health.test_xid import GSP, kernel
from tests.gpu.test_serialization import any_of
from tests.support.explore import examples
from tests.support.nvml import Driver, box, card

DASHBOARD = ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
             "DCGM_FI_DEV_FB_USED"]  # fmt: skip
"""What NVIDIA's own Grafana dashboard asks for, but for the profiling counters that only DCGM has."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")


@dataclass
class Family:
    kind: str = "untyped"
    help: str = ""
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)


def parse(text: str) -> dict[str, Family]:
    """Prometheus's text format 0.0.4, strictly: every family has HELP and TYPE, once and before its samples, its
    samples stand together, no label set comes twice, and the last line ends.
    """
    assert text == "" or text.endswith("\n")
    families: dict[str, Family] = {}
    current = None
    for line in text.split("\n")[:-1]:
        if match := re.fullmatch(rf"# HELP ({_NAME}) (.+)", line):
            current = match[1]
            assert current not in families, f"{current} comes twice"
            families[current] = Family(help=match[2])
        elif match := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)", line):
            assert match[1] == current
            assert not families[match[1]].samples
            assert families[match[1]].kind == "untyped"
            families[match[1]].kind = match[2]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current, f"{match[1]} outside its family"
            labels, rest = {}, match[2] or ""
            while rest:
                label = _LABEL.match(rest)
                assert label, rest
                assert label[1] not in labels
                labels[label[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), label[2])
                rest = rest[label.end() :]
            value = float(match[3])
            assert not math.isnan(value)
            family = families[match[1]]
            assert labels not in [name for name, _ in family.samples]
            family.samples.append((labels, value))
    for name, family in families.items():
        assert family.samples, f"{name} has no samples"
        assert family.kind != "untyped"
    return families


@pytest.fixture
def eight(driver: Callable[[Driver], Driver]) -> Driver:
    return driver(Driver(box("H100", 8, utilisation=(87, 40), used_mib=40_000)))


def test_dashboards_of_dcgm_exporter_find_their_metrics(eight: Driver) -> None:
    families = parse(render(detect.inventory()))
    for name in DASHBOARD:
        assert len(families[name].samples) == 8
    labels, value = families["DCGM_FI_DEV_GPU_UTIL"].samples[1]
    gpu = detect.inventory().gpus[1]
    assert value == 87
    assert labels == {
        "gpu": "1", "UUID": gpu.uuid, "pci_bus_id": "00000000:0C:00.0", "device": "nvidia1",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": os.uname().nodename, "hostname": os.uname().nodename,
    }  # fmt: skip


def test_values_have_the_units_of_their_names(eight: Driver) -> None:
    families = parse(render(detect.inventory()))
    values = {name: family.samples[0][1] for name, family in families.items()}
    assert values["DCGM_FI_DEV_POWER_USAGE"] == pytest.approx(71.432)
    assert values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == 5_400_000_123
    assert values["DCGM_FI_DEV_FB_USED"] == 40_000
    assert values["DCGM_FI_DEV_FB_TOTAL"] == 81_559
    assert values["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 1
    assert {name for name, family in families.items() if family.kind == "counter"} == {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    }  # fmt: skip


def test_health_is_a_state_set_per_gpu_and_machine(driver: Callable[[str], Driver]) -> None:
    driver("lost")
    inventory = detect.inventory()
    families = parse(render(inventory, evaluate(inventory)))
    states = {
        int(labels["gpu"]): labels["state"] for labels, value in families["paddock_gpu_health"].samples if value == 1
    }
    assert states == {n: "unhealthy" if n == 2 else "healthy" for n in range(8)}
    assert len(families["paddock_gpu_health"].samples) == 8 * len(VERDICTS)
    assert {labels["state"]: value for labels, value in families["paddock_node_health"].samples} == {
        "healthy": 0, "degraded": 0, "unknown": 0, "unhealthy": 1,
    }  # fmt: skip
    assert len(families["DCGM_FI_DEV_GPU_UTIL"].samples) == 7


def test_unknown_values_are_left_out(driver: Callable[[str], Driver]) -> None:
    driver("t4")
    families = parse(render(detect.inventory()))
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in families
    assert "DCGM_FI_DEV_ROW_REMAP_FAILURE" not in families


def test_memory_of_mig_parts_has_the_labels_of_dcgm(driver: Callable[[str], Driver]) -> None:
    driver("mig")
    families = parse(render(detect.inventory()))
    parts = [labels for labels, _ in families["DCGM_FI_DEV_FB_USED"].samples if "GPU_I_ID" in labels]
    assert len(parts) == 7
    assert {labels["GPU_I_PROFILE"] for labels in parts} == {"1g.10gb"}
    assert len(families["DCGM_FI_DEV_GPU_UTIL"].samples) == 1


def test_the_last_xid_is_exported(eight: Driver) -> None:
    when = datetime(2026, 11, 20, tzinfo=UTC)
    events = [XidEvent(code, "0000:0c:00.0", when, "") for code in (31, 119)]
    (sample,) = parse(render(detect.inventory(), xids=events))["DCGM_FI_DEV_XID_ERRORS"].samples
    assert (sample[0]["gpu"], sample[1]) == ("1", 119)


def test_a_machine_without_gpus_still_has_a_verdict() -> None:
    nothing = Inventory("2026-11-20T10:00:00Z", Machine("node", "linux", "x86_64"), "none", reason="There is none.")
    assert render(nothing) == ""
    assert list(parse(render(nothing, evaluate(nothing)))) == ["paddock_node_health"]


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash", "two\nlines", "", "ü \u2028", "a{b}"])
def test_names_are_escaped(name: str) -> None:
    gpu = Gpu(0, "GPU-0", name, "nvidia", persistence=True)
    inventory = Inventory("", Machine(name, "linux", "x86_64"), "nvml", (gpu,))
    ((labels, _),) = parse(render(inventory))["DCGM_FI_DEV_PERSISTENCE_MODE"].samples
    assert (labels["modelName"], labels["Hostname"]) == (name, name)


def test_compute_instances_of_one_mig_part_are_exported_once() -> None:
    memory = Memory(20096, 10, 20000, 86)
    halves = tuple(MigDevice(f"MIG-{number}", "1c.3g.20gb", 1, number, memory) for number in range(2))
    gpu = Gpu(0, "GPU-0", "NVIDIA A100", "nvidia", mig=Mig(True, False, halves))
    inventory = Inventory("", Machine("", "linux", "x86_64"), "nvml", (gpu,))
    ((labels, used),) = parse(render(inventory))["DCGM_FI_DEV_FB_USED"].samples
    assert (labels["GPU_I_ID"], used) == ("1", 10)


@examples(20, 300)
@given(any_of(Inventory).filter(lambda inventory: len({gpu.index for gpu in inventory.gpus}) == len(inventory.gpus)))
def test_every_inventory_renders_in_the_text_format(inventory: Inventory) -> None:
    parse(render(inventory, evaluate(inventory)))


# --- the file


def test_the_file_is_replaced_in_one_step_and_world_readable(tmp_path: Path) -> None:
    path = tmp_path / "paddock.prom"
    write(path, "old 1\n")
    before = path.stat().st_ino
    with path.open() as still_open:
        write(path, "new 2\n")
        assert still_open.read() == "old 1\n"
    assert path.read_text() == "new 2\n"
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["paddock.prom"]


@pytest.mark.parametrize(("where", "message"), [
    ("paddock.txt", r"not a file that node_exporter reads(.|\n)*paddock\.prom"),
    ("nowhere/paddock.prom", r"cannot write .*: No such file or directory"),
    ("folder.prom", r"cannot write .*: Is a directory"),
])  # fmt: skip
def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, where: str, message: str) -> None:
    (tmp_path / "folder.prom").mkdir()
    with pytest.raises(GpuInputError, match=message):
        write(tmp_path / where, "x 1\n")
    assert os.listdir(tmp_path) == ["folder.prom"]


# --- over HTTP


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    servers: list[Server] = []

    def serve() -> Server:
        server = Server(Exporter(root=tmp_path, run=lambda command: None), port=0)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def get(server: Server, path: str = "/metrics") -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(server.url.replace("/metrics", path), timeout=20) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_prometheus_scrapes_it(eight: Driver, serving: Callable[[], Server]) -> None:
    server = serving()
    status, kind, text = get(server)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert {*DASHBOARD, "paddock_gpu_health"} < set(parse(text))
    assert get(server, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(server, "/")[0] == 404
    assert server.server_address[0] == "127.0.0.1"


def test_concurrent_scrapes_read_the_driver_once_a_second(eight: Driver) -> None:
    now = 0.0
    exporter = Exporter(log=False, clock=lambda: now)
    exporter.text()
    calls = sum(eight.calls.values())
    threads = [threading.Thread(target=exporter.text) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(eight.calls.values()) == calls
    now = 1.0
    eight.cards[0].utilisation = (3, 0)
    assert parse(exporter.text())["DCGM_FI_DEV_GPU_UTIL"].samples[0][1] == 3
    assert calls < sum(eight.calls.values()) < calls + 8 * 20


def test_slow_values_are_read_again_within_minutes(eight: Driver, tmp_path: Path) -> None:
    now = 0.0
    exporter = Exporter(clock=lambda: now, root=kernel(tmp_path))
    assert parse(exporter.text())["DCGM_FI_DEV_ROW_REMAP_PENDING"].samples[5][1] == 0
    eight.cards[5].remapped = (0, 1, 1, 0)
    eight.cards[3].link_errors = {7: 5000}
    eight.cards[4].pcie = (1, 8, 5, 16)
    eight.cards[0].recovery = None
    (tmp_path / "dev/kmsg").write_text(f"4,1,7000000,-;{GSP}\n")
    now = 61.0
    families = parse(exporter.text())
    assert families["DCGM_FI_DEV_ROW_REMAP_PENDING"].samples[5][1] == 1
    assert families["DCGM_FI_DEV_XID_ERRORS"].samples[0][1] == 119
    states = [(labels["gpu"], labels["state"]) for labels, value in families["paddock_gpu_health"].samples if value]
    assert {("3", "degraded"), ("4", "degraded"), ("5", "degraded"), ("6", "healthy")} < set(states)
    assert ("0", "unhealthy") in states


def test_without_gpus_it_goes_on_and_says_so(driver: Callable[[str], Driver], serving: Callable[[], Server]) -> None:
    driver("none")
    server = serving()
    status, _, text = get(server, "/healthz")
    assert status == 503
    assert "GPU" in text
    assert get(server)[0] == 200


def test_an_occupied_or_invalid_port_is_refused() -> None:
    message = r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"
    with Server(Exporter(), port=0) as server, pytest.raises(GpuInputError, match=message):
        Server(Exporter(), port=server.server_port)
    with pytest.raises(GpuInputError, match=r"cannot listen on 127\.0\.0\.1:99999"):
        Server(Exporter(), port=99999)


def test_every_metric_has_a_name_of_dcgm() -> None:
    assert all(re.fullmatch(r"DCGM_FI_DEV_[A-Z_]+", metric.name) for metric in METRICS)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_gpus_of_a_driver_that_hangs_are_unknown_until_it_answers(
    driver: Callable[[Driver], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(Driver([card("H100")]))
    exporter = Exporter(min_age=0, log=False)
    assert 'state="healthy"} 1' in exporter.text()
    released, real = threading.Event(), Sampler.read

    def hang(sampler: Sampler) -> Inventory:
        released.wait(60)
        return real(sampler)

    monkeypatch.setattr(Sampler, "read", hang)
    monkeypatch.setenv("PADDOCK_GPU_DEADLINE", "0.2")
    try:
        for _ in range(2):
            assert 'state="unknown"} 1' in exporter.text()
    finally:
        released.set()
    monkeypatch.setenv("PADDOCK_GPU_DEADLINE", "30")
    deadline = time.monotonic() + 30
    while 'state="healthy"} 1' not in exporter.text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 'state="healthy"} 1' in exporter.text()
