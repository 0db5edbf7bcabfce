"""Diagnosis of an agent: the chain from the machine to the framework's devices, and its first broken link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from paddock.gpu.model import Inventory
from paddock.serve.agents.inventory_devices import BACKEND_OF
from paddock.serve.placement.device import Backend

_PROCESSOR: Backend = "cpu"
_OF_TORCH = ("torch", "build", "devices")
State = Literal["ok", "broken", "unknown"]
_TITLES: dict[Backend, str] = {"cuda": "CUDA", "rocm": "ROCm", "metal": "Metal", "cpu": "the processor"}


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """Facts about torch on a machine, as it says them itself. `version` None: not installed; else None is unknown."""

    version: str | None = None
    cuda_build: str | None = None
    """Version of CUDA that it was built for."""
    rocm_build: str | None = None
    metal_build: bool | None = None
    devices: int | None = None
    """GPUs that it sees."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain, with what was read and how to mend it."""

    name: str
    state: State
    evidence: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.name} is broken: {self.evidence}{fix}" if self.state == "broken" else self.evidence

    def document(self) -> dict[str, Any]:
        return {"link": self.name, "state": self.state, "evidence": self.evidence, "fix": self.fix or None}


def broken(links: Iterable[Link]) -> Link | None:
    """Return the first link that is broken: those after it may fail because of it."""
    return next((link for link in links if link.state == "broken"), None)


def unusable(inventory: Inventory, torch: TorchFacts) -> dict[Backend, Link]:
    """Return the backends of a machine, its processor among them, on which torch computes nothing, and why.

    GPUs that do not answer are known by their own state, and those that torch sees beside others still compute.
    """
    links: dict[Backend, Link] = {}
    for backend in dict.fromkeys([*(BACKEND_OF[gpu.vendor] for gpu in inventory.gpus), _PROCESSOR]):
        link = broken(diagnose(inventory, torch, backend))
        if link and link.name in _OF_TORCH and not (link.name == "devices" and torch.devices):
            links[backend] = link
    return links


def diagnose(inventory: Inventory, torch: TorchFacts | None, backend: Backend | None = None) -> tuple[Link, ...]:
    """Return the chain of a backend: machine, GPUs, torch, torch's build, torch's devices. It ends where it breaks.

    Without a backend it is that of the machine's GPUs, else the usual one of its system. `torch` None is unknown.
    """
    backend = backend or _usual(inventory)
    links: list[Link] = []
    for link in _chain(inventory, torch, backend):
        links.append(link)
        if link.state != "ok":
            break
    return tuple(links)


def _usual(inventory: Inventory) -> Backend:
    for gpu in inventory.gpus:
        return BACKEND_OF[gpu.vendor]
    return "metal" if inventory.machine.system == "macos" else "cuda"


def _chain(inventory: Inventory, torch: TorchFacts | None, backend: Backend) -> Iterable[Link]:
    if backend == "cpu":
        yield Link("machine", "ok", f"{inventory.machine.system}, {inventory.machine.architecture}")
    else:
        yield _machine(inventory, backend)
        yield _gpus(inventory, backend)
    if torch is None:
        yield Link("torch", "unknown", "it was not looked at on that machine")
        return
    yield _installed(torch)
    if backend != "cpu":
        yield _build(inventory, torch, backend)
        yield _seen(inventory, torch, backend)


def _machine(inventory: Inventory, backend: Backend) -> Link:
    machine = inventory.machine
    name = f"{machine.system}, {machine.architecture}"
    if backend != "metal":
        if machine.system == "macos":
            fix = "use --backend metal on a Mac"
            return Link("machine", "broken", f"{name}: macOS has no {_TITLES[backend]}", fix)
        return Link("machine", "ok", name)
    if machine.system != "macos":
        fix = "use a Mac with an Apple chip, or --backend cuda here; a Linux container on a Mac has no Metal"
        return Link("machine", "broken", f"{name}: Metal is there on macOS alone", fix)
    if machine.architecture != "arm64":
        fix = "use a Mac with an Apple chip (M1 or later); on one, start an arm64 Python instead of one under Rosetta"
        return Link("machine", "broken", f"{name}: no arm64 program, and an Intel Mac has no GPU for this", fix)
    return Link("machine", "ok", name)


def _gpus(inventory: Inventory, backend: Backend) -> Link:
    gpus = [gpu for gpu in inventory.gpus if BACKEND_OF[gpu.vendor] == backend]
    usable = [gpu for gpu in gpus if gpu.state == "ok"]
    if usable:
        driver = f", driver {inventory.driver.version}" if inventory.driver else ""
        return Link("driver", "ok", f"{len(usable)} of {len(gpus)} GPUs answer{driver}")
    if gpus:
        reasons = "; ".join(f"GPU {gpu.index} is {gpu.state}{f': {gpu.reason}' if gpu.reason else ''}" for gpu in gpus)
        return Link("driver", "broken", reasons, "gpu.health says what they need")
    if inventory.gpus:
        return Link("driver", "broken", f"its GPUs are none of {_TITLES[backend]}", "choose the backend of its GPUs")
    return Link("driver", "broken", inventory.reason or "no GPU, and the inventory does not say why")


def _installed(torch: TorchFacts) -> Link:
    if torch.error:
        return Link("torch", "broken", torch.error, "install torch again in that environment")
    if torch.version is None:
        return Link("torch", "broken", "torch is not installed", "pip install 'paddock[serve]'")
    return Link("torch", "ok", torch.version)


def _build(inventory: Inventory, torch: TorchFacts, backend: Backend) -> Link:
    if backend == "metal":
        if torch.metal_build is False:
            fix = "install torch with an arm64 Python"
            return Link("build", "broken", f"torch {torch.version} was built without Metal", fix)
        return Link("build", "ok" if torch.metal_build else "unknown", "built with Metal")
    build = torch.cuda_build if backend == "cuda" else torch.rocm_build
    if build is None:
        other = "ROCm" if torch.rocm_build else "CUDA" if torch.cuda_build else "the processor alone"
        evidence = f"the wrong build: torch {torch.version} is for {other}"
        return Link("build", "broken", evidence, f"install the build of torch for {_TITLES[backend]}")
    limit = inventory.driver.cuda if inventory.driver and backend == "cuda" else None
    if limit and _major(build) > _major(limit):
        evidence = f"torch {torch.version} is for CUDA {build}, and the driver supports {limit} at most"
        return Link("build", "broken", evidence, f"upgrade the driver, or install torch for CUDA {_major(limit)}")
    return Link("build", "ok", f"for {_TITLES[backend]} {build}")


def _seen(inventory: Inventory, torch: TorchFacts, backend: Backend) -> Link:
    usable = sum(1 for gpu in inventory.gpus if BACKEND_OF[gpu.vendor] == backend and gpu.state == "ok")
    if torch.devices is None:
        return Link("devices", "unknown", "torch did not say how many GPUs it sees")
    if torch.devices == 0:
        fixes = {
            "cuda": "check CUDA_VISIBLE_DEVICES, /dev/nvidia-uvm (`nvidia-modprobe -u`) and LD_LIBRARY_PATH, which must"
            " not put a stub of libcuda.so first",
            "rocm": "check HIP_VISIBLE_DEVICES, and that this user may open /dev/kfd",
            "metal": "update macOS: torch needs 14 or later",
        }
        return Link("devices", "broken", f"torch sees none of {usable} GPUs", fixes[backend])
    evidence = f"torch sees {torch.devices} of {usable} GPUs"
    if torch.devices < usable:
        variable = "HIP_VISIBLE_DEVICES" if backend == "rocm" else "CUDA_VISIBLE_DEVICES"
        return Link("devices", "broken", evidence, f"widen {variable}, or plan with --devices")
    return Link("devices", "ok", evidence)


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdecimal() else 0
