"""All files for each machine, compared with golden files and read by the targets' own parsers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.gpu.render import TARGETS, Rendered, render
from paddock.gpu.render.rendered import unedited
from tests.support.golden import same_as_golden
from tests.support.gpu_machines import host, machines
from tests.support.http_server import Handler, serving

GOLDEN = Path(__file__).with_name("golden")
MACHINES = ("8-h100", "t4", "t4-a10g", "mig", "one-lost", "2-mi300x", "none")
SLURM = {
    "hardware": "NodeName=box CPUs=96 Boards=1 SocketsPerBoard=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=2000"
}


@pytest.fixture(scope="module")
def inventories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inventory]:
    return machines(tmp_path_factory.mktemp("machines"))


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, inventories: dict[str, Inventory]) -> tuple[str, Inventory]:
    return request.param, inventories[request.param]


def all_renderings(name: str, inventory: Inventory, folder: Path) -> Iterator[tuple[str, Rendered | GpuError]]:
    """All that is rendered of a machine's GPUs, with what each target was asked."""
    few: dict[str, Any] = {"mig": {"mig": "1g.10gb"}, "8-h100": {"count": 2}}.get(name, {"count": 1})
    shared = {"mig": few}.get(name, {"share": 0.25})
    cases: list[tuple[str, str, Any, dict[str, Any]]] = [
        (target, "", None, {}) for target in TARGETS if target != "proxmox"
    ]
    cases += [("docker", "a request", few, {}), ("slurm", "a request", few, {})]
    cases += [("docker", "fields", {"Enabled": True, "Runtime": "nvidia", "Capabilities": ["compute", "utility"]}, {})]
    cases += [("docker", "All", {"All": True, "Capabilities": ["compute", "utility"]}, {})]
    cases += [("compose", "the short form", {"All": True}, {"form": "gpus"})]
    cases += [("kubernetes", "shared", shared, {}), ("kubernetes", "Enabled is false", {"Enabled": False}, {})]
    cases += [("slurm", "whole, with NVML", None, {"whole": True, "plugins": "gpu_nvml", **SLURM})]
    cases += [("slurm", "shards", None, {"shards": 4})]
    cases += [("proxmox", "", few, {"root": folder, "node": "pve1"})]
    for target, title, selection, options in cases:
        try:
            yield f"{target}{f' ({title})' if title else ''}", render(target, inventory, selection, **options)
        except GpuError as error:
            yield f"{target}{f' ({title})' if title else ''}", error


@pytest.fixture
def rendered(machine: tuple[str, Inventory], tmp_path: Path) -> dict[str, Rendered | GpuError]:
    name, inventory = machine
    return dict(all_renderings(name, inventory, host(tmp_path, inventory.gpus)))


def files(rendered: dict[str, Rendered | GpuError], path: str) -> Iterator[str]:
    for result in rendered.values():
        if isinstance(result, Rendered):
            yield from (file.text for file in result.files if file.path.endswith(path))


def test_everything_of_a_machine_is_as_it_was_reviewed(
    machine: tuple[str, Inventory], rendered: dict[str, Rendered | GpuError]
) -> None:
    lines = []
    for title, result in rendered.items():
        lines.append(f"######## {title}\n")
        if isinstance(result, GpuError):
            lines.append(f"refused: {result}\n")
            continue
        lines += [f"note: {note}\n" for note in result.notes] + [f"warning: {warning}\n" for warning in result.warnings]
        for file in result.files:
            mark = f" {file.mode:o}" if file.mode != 0o644 else ""
            text = re.sub(r"(?<=rest: )[0-9a-f]{64}", "…", file.text)
            lines.append(f"==== {file.path}{mark}\n{text}")
    same_as_golden(GOLDEN, f"{machine[0]}.txt", "".join(lines))


# What reads them.


def test_a_shell_reads_every_script(rendered: dict[str, Rendered | GpuError], tmp_path: Path) -> None:
    scripts = [text for end in (".sh", "init-top/paddock-vfio", "gpu.env") for text in files(rendered, end)]
    assert scripts
    for text in scripts:
        result = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert unedited(text)


def test_a_shell_makes_one_word_of_each_docker_argument(rendered: dict[str, Rendered | GpuError]) -> None:
    for text in files(rendered, "docker-run.args"):
        script = f"set -- {text.strip()}; printf '%s\\0' \"$@\""
        words = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
        assert words == shlex.split(text)


def test_the_docker_cli_and_the_sdk_request_the_same_gpus(inventories: dict[str, Inventory], tmp_path: Path) -> None:
    """The real command line; what the engine would be asked is written down by a stand-in of it."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("docker is not on PATH")
    # Each run of the program costs a tenth of a second.
    for name in ("8-h100", "mig", "2-mi300x", "none"):
        for selection in (None, {"All": True, "Capabilities": ["compute", "video"]}, {"Enabled": False}):
            if name == "none" and selection and "All" in selection:
                continue
            line = render("docker", inventories[name], selection).text("docker-run.args")
            device_request = json.loads(render("docker-sdk", inventories[name], selection).text("docker-sdk.json"))
            with engine() as (address, bodies):
                words = [docker, "-H", address, "create", *shlex.split(line), "image"]
                result = subprocess.run(words, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            (body,) = bodies
            config = body["HostConfig"]
            requests = [
                (entry.get("Count", 0), entry.get("DeviceIDs") or None, sorted(entry["Capabilities"][0]))
                for entry in config["DeviceRequests"] or []
            ]
            assert requests == [
                (entry.get("Count", 0), entry.get("DeviceIDs"), sorted(entry["Capabilities"][0]))
                for entry in device_request.get("device_requests", [])
            ]
            assert [
                f"{device['PathOnHost']}:{device['PathInContainer']}:rwm" for device in config["Devices"]
            ] == device_request.get("devices", [])
            assert (config["GroupAdd"] or []) == device_request.get("group_add", [])
            assert (
                body["Env"] == [f"{name}={value}" for name, value in device_request["environment"].items()]
                or not body["Env"]
            )


def test_the_docker_cli_takes_cdi_names_for_cdi_devices(inventories: dict[str, Inventory]) -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("docker is not on PATH")
    rendered = render("cdi", inventories["t4-a10g"])
    with engine() as (address, bodies):
        words = [docker, "-H", address, "create", *shlex.split(rendered.text("docker-run.args")), "image"]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (device_request,) = bodies[0]["HostConfig"]["DeviceRequests"]
    assert (device_request["Driver"], device_request["DeviceIDs"]) == ("cdi", rendered.text("devices.txt").split())


@contextmanager
def engine() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield a stand-in of Docker's engine that creates every container, and what it was asked for."""
    bodies: list[dict[str, Any]] = []

    class Engine(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, b"OK" if self.path.endswith("_ping") else b"{}")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(201, b'{"Id": "made", "Warnings": []}')

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            for name, value in (("Api-Version", "1.50"), ("Ostype", "linux"), ("Content-Type", "application/json")):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with serving(Engine) as url:
        yield url.replace("http", "tcp"), bodies


def test_docker_compose_reads_every_file(rendered: dict[str, Rendered | GpuError], tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose plugin here")
    for number, text in enumerate(files(rendered, "compose.yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        result = subprocess.run(
            [docker, "compose", "-f", file, "config", "-q"], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr


def test_slurm_reads_every_file(machine: tuple[str, Inventory], tmp_path: Path) -> None:
    """The real slurmd. It wants device files, so terminals stand for GPUs."""
    slurmd = shutil.which("slurmd")
    if slurmd is None:
        pytest.skip("slurmd is not on PATH")
    name, inventory = machine
    if name == "mig":
        pytest.skip("only NVML tells Slurm of MIG parts")
    rendered = render("slurm", inventory, whole=True, shards=4, **SLURM)
    gres = rendered.text("gres.conf").replace("renderD[128-129]", "renderD[0-1]")
    (tmp_path / "gres.conf").write_text(re.sub(r"/dev/(nvidia|dri/renderD)", "/dev/tty", gres))
    conf = rendered.text("slurm.conf").replace("auth/munge", "auth/none").replace("SlurmUser=slurm", "SlurmUser=root")
    (tmp_path / "slurm.conf").write_text(conf.replace("/var/spool", str(tmp_path)))
    command = [slurmd, "-N", "box", "-f", tmp_path / "slurm.conf", "-G"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    counts = re.findall(r"Gres Name=(\w+) Type=\S+ Count=(\d+)", result.stdout + result.stderr)
    count = len(inventory.usable)
    assert sum(int(number) for kind, number in counts if kind == "gpu") == count
    assert sum(int(number) for kind, number in counts if kind == "shard") == 4 * count


def test_a_request_of_the_wrong_size_is_no_file(inventories: dict[str, Inventory]) -> None:
    for target in TARGETS:
        with pytest.raises(GpuError, match="9 GPUs requested, and 8 available"):
            render(target, inventories["8-h100"], Request(count=9))
