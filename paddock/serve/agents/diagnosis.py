"""Diagnosis of an agent: the chain from the machine to what llama.cpp sees of it, and its first broken link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from paddock.gpu.model import Inventory
from paddock.serve.agents.inventory_devices import BACKEND_OF
from paddock.serve.placement.device import Backend

_PROCESSOR: Backend = "cpu"
_OF_ENGINE = ("engine", "build", "devices")
State = Literal["ok", "broken", "unknown"]
_TITLES: dict[Backend, str] = {"cuda": "CUDA", "rocm": "ROCm", "metal": "Metal", "cpu": "the CPU"}
_OTHER_ENGINES = "serve.load --server names a llama-server built for {title}, and vLLM brings its own build (--python)"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts about llama.cpp on a machine, as it says them itself. `version` None: not installed.

    `gpus` are the backends of the GPUs that it sees, one an entry.
    """

    version: str | None = None
    gpus: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain, with what was read and how to fix it."""

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


def unusable(inventory: Inventory, engine: EngineFacts) -> dict[Backend, Link]:
    """Return the backends of a machine, its CPU among them, on which llama.cpp computes nothing, and why.

    GPUs that do not answer are known by their own state, and those that it sees next to others still compute.
    """
    links: dict[Backend, Link] = {}
    for backend in dict.fromkeys([*(BACKEND_OF[gpu.vendor] for gpu in inventory.gpus), _PROCESSOR]):
        link = broken(diagnose(inventory, engine, backend))
        if link and link.name in _OF_ENGINE and not (link.name == "devices" and backend in engine.gpus):
            links[backend] = link
    return links


def diagnose(inventory: Inventory, engine: EngineFacts | None, backend: Backend | None = None) -> tuple[Link, ...]:
    """Return the chain of a backend: machine, GPUs, engine, its build, its devices. It ends where it breaks.

    Without a backend it is that of the machine's GPUs, else the usual one of its system. `engine` None is unknown.
    """
    backend = backend or _usual(inventory)
    links: list[Link] = []
    for link in _chain(inventory, engine, backend):
        links.append(link)
        if link.state != "ok":
            break
    return tuple(links)


def _usual(inventory: Inventory) -> Backend:
    for gpu in inventory.gpus:
        return BACKEND_OF[gpu.vendor]
    return "metal" if inventory.machine.system == "macos" else "cuda"


def _chain(inventory: Inventory, engine: EngineFacts | None, backend: Backend) -> Iterable[Link]:
    if backend == "cpu":
        yield Link("machine", "ok", f"{inventory.machine.system}, {inventory.machine.architecture}")
    else:
        yield _machine(inventory, backend)
        yield _gpus(inventory, backend)
    if engine is None:
        yield Link("engine", "unknown", "it was not checked on that machine")
        return
    yield _installed(engine)
    if backend != "cpu":
        yield _build(engine, backend)
        yield _seen(inventory, engine, backend)


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
        return Link("driver", "broken", f"its GPUs do not support {_TITLES[backend]}", "choose the backend of its GPUs")
    return Link("driver", "broken", inventory.reason or "no GPU, and the inventory does not say why")


def _installed(engine: EngineFacts) -> Link:
    if engine.error:
        return Link("engine", "broken", engine.error, "install xllamacpp again in that environment")
    if engine.version is None:
        return Link("engine", "broken", "llama.cpp is not installed", "pip install 'paddock[serve]'")
    return Link("engine", "ok", f"llama.cpp (xllamacpp {engine.version})")


def _build(engine: EngineFacts, backend: Backend) -> Link:
    title = _TITLES[backend]
    if backend in engine.gpus:
        return Link("build", "ok", f"for {title}")
    if backend == "metal":
        return Link("build", "broken", "llama.cpp sees no Metal device", "use an arm64 Python, and macOS 14 or later")
    evidence = "llama.cpp here is built for the CPU alone"
    if engine.gpus:
        evidence = f"llama.cpp here is built for {', '.join(dict.fromkeys(engine.gpus))}"
    return Link("build", "broken", evidence, _OTHER_ENGINES.format(title=title))


def _seen(inventory: Inventory, engine: EngineFacts, backend: Backend) -> Link:
    usable = sum(1 for gpu in inventory.gpus if BACKEND_OF[gpu.vendor] == backend and gpu.state == "ok")
    seen = engine.gpus.count(backend)
    evidence = f"llama.cpp sees {seen} of {usable} GPUs"
    if seen < usable:
        variable = "HIP_VISIBLE_DEVICES" if backend == "rocm" else "CUDA_VISIBLE_DEVICES"
        return Link("devices", "broken", evidence, f"widen {variable}, or plan with --devices")
    return Link("devices", "ok", evidence)
