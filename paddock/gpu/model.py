"""Data model of a machine's GPUs at one moment.

None is a value that could not be read, or that this GPU does not have; it is never a guess. A GPU's identity is its
UUID: indexes differ between NVML, CUDA and containers, and change when a card is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA = 1
"""Version of the documents that `--json` and the actions print; files have their own.

It rises when a field changes its meaning or goes, not with new fields.
"""

Vendor = Literal["nvidia", "amd", "apple"]
State = Literal["ok", "lost", "unreadable"]
Throttle = Literal[
    "idle",
    "application-clocks",
    "software-power-cap",
    "hardware-slowdown",
    "sync-boost",
    "software-thermal",
    "hardware-thermal",
    "hardware-power-brake",
    "display-clocks",
    "board-limit",
    "reliability",
]
RecoveryAction = Literal[
    "none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset", "recover-imex", "bus-reset", "system-reboot"
]
Closeness = Literal["same-board", "pcie-switch", "pcie-switches", "host-bridge", "numa-node", "system"]
"""The level that two GPUs share, from near to far. nvidia-smi calls all but the first PIX, PXB, PHB, NODE and SYS."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in MiB. `reserved` is the driver's own; where it is None, `used` includes it."""

    total: int
    used: int
    free: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class Power:
    """Power in watts; `energy` is joules since the driver was loaded."""

    draw: float | None = None
    limit: float | None = None
    default_limit: float | None = None
    min_limit: float | None = None
    max_limit: float | None = None
    energy: float | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz."""

    sm: int | None = None
    memory: int | None = None
    max_sm: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, slots=True)
class Temperature:
    """Degrees Celsius. `margin` is the distance to the GPU's slowdown threshold."""

    gpu: int | None = None
    memory: int | None = None
    margin: int | None = None


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Per cent of the last sample period in which a kernel ran, and in which memory was read or written."""

    gpu: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Ecc:
    """Memory errors: volatile since the driver was loaded, aggregate over the GPU's life."""

    enabled: bool | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    aggregate_uncorrected: int | None = None
    aggregate_sram_uncorrected: int | None = None
    """Errors in the chip itself, which no spare row repairs."""


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Memory rows replaced by spare ones; `pending` needs a reset, `failed` means that no spare is left."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class Pcie:
    """Current link (it slows down when idle) and its maximum; `replays` is since the driver was loaded.

    `sent` and `received` are the GPU's MB/s, and None unless requested: each blocks the driver for 20 ms.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    replays: int | None = None
    sent: float | None = None
    received: float | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link. Its remote end (`remote` is a PCI address) and its errors are read with the topology."""

    link: int
    active: bool
    to: Literal["gpu", "switch", "cpu", "unknown"] = "unknown"
    remote: str | None = None
    errors: int | None = None
    """Replays, recoveries and CRC errors together, since the driver was loaded."""


@dataclass(frozen=True, slots=True)
class MigDevice:
    """Part of a GPU that is one device to CUDA. No driver reports the utilisation of a part."""

    uuid: str
    profile: str
    """`1g.10gb`."""
    gpu_instance: int
    compute_instance: int
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Mig:
    """MIG mode and devices. `pending` is the mode after the next reset."""

    enabled: bool
    pending: bool
    devices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """Process on a GPU. The pid is that of the host, even inside a container."""

    pid: int
    kind: Literal["compute", "graphics", "mps"]
    memory: int | None = None
    """MiB."""
    name: str | None = None
    user: str | None = None
    mig_uuid: str | None = None


@dataclass(frozen=True)  # without slots a sampler copies one in an eighth of the time
class Gpu:
    """One GPU. With a `state` other than ok, `reason` says why, and only earlier facts are set."""

    index: int
    """The backend's index; CUDA's differs unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: str | None
    name: str | None
    vendor: Vendor
    state: State = "ok"
    reason: str | None = None
    minor: int | None = None
    """The N of /dev/nvidiaN (NVIDIA) or of /dev/dri/renderDN (AMD)."""
    device_group: int | None = None
    """The number of the group that may open /dev/kfd (AMD)."""
    pci_address: str | None = None
    """`0000:04:00.0`, as sysfs writes it."""
    pci_device_id: str | None = None
    """`10de:2330`."""
    serial: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    """`9.0`; for AMD the target, `gfx942`."""
    cores: int | None = None
    memory: Memory | None = None
    unified_memory: bool = False
    """The memory is the machine's own."""
    power: Power = field(default_factory=Power)
    clocks: Clocks = field(default_factory=Clocks)
    temperature: Temperature = field(default_factory=Temperature)
    utilisation: Utilisation = field(default_factory=Utilisation)
    throttle: tuple[Throttle, ...] | None = None
    """Reasons for reduced clocks."""
    ecc: Ecc = field(default_factory=Ecc)
    remapped: RemappedRows | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    """A page of memory is retired at the next reset. GPUs before Ampere retire pages, later ones remap rows."""
    recovery_action: RecoveryAction | None = None
    """The action that the driver recommends."""
    pcie: Pcie = field(default_factory=Pcie)
    nvlinks: tuple[NvLink, ...] = ()
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    """The logical CPUs near it."""
    compute_mode: Literal["default", "exclusive-process", "prohibited"] | None = None
    persistence: bool | None = None
    mig: Mig | None = None
    """None where the GPU cannot be divided."""
    vbios: str | None = None
    unread: tuple[str, ...] = ()
    """Fields that would show a fault, and that the driver failed to report: not those that the GPU does not have."""
    processes: tuple[Process, ...] | None = None
    """None where they were not requested or cannot be read; an empty tuple means that there are none."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Connection of two GPUs, by index."""

    a: int
    b: int
    closeness: Closeness | None
    nvlinks: int = 0
    """Active links between them, or to a common switch."""
    peer_access: bool | None = None
    """True where each can read the other's memory."""


@dataclass(frozen=True, slots=True)
class Driver:
    version: str
    """`580.95.05`."""
    cuda: str | None = None
    """The newest CUDA version that it supports, `13.0`."""
    library: str | None = None
    """The version of the NVML library."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit, or ROCm."""

    version: str
    path: str
    compat: str | None = None
    """The version of the driver libraries of its forward-compatibility package."""


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """Container tooling that passes GPUs to containers on this machine."""

    toolkit: str | None = None
    """The version of nvidia-container-toolkit."""
    docker: str | None = None
    """The version of the Docker engine, where it answers."""
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cdi: tuple[str, ...] = ()
    """The CDI specification files that are there."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    system: Literal["linux", "macos", "windows", "other"]
    architecture: str
    container: bool = False
    wsl: bool = False
    boot_id: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """A machine's GPUs. Without any, `reason` says why in a sentence."""

    taken_at: str
    """ISO 8601, UTC."""
    machine: Machine
    backend: Literal["nvml", "amd-sysfs", "amdsmi", "apple", "none"]
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[Pair, ...] = ()
    driver: Driver | None = None
    toolkit: Toolkit | None = None
    runtime: ContainerRuntime | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """Unreadable values, with the reason and the fix."""
    schema: int = SCHEMA

    def gpu(self, uuid: str) -> Gpu | None:
        """Return the GPU of that UUID, or the one with the MIG device of that UUID."""
        for gpu in self.gpus:
            if gpu.uuid == uuid or (gpu.mig and any(part.uuid == uuid for part in gpu.mig.devices)):
                return gpu
        return None

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """GPUs that answer, with a UUID."""
        return tuple(gpu for gpu in self.gpus if gpu.state == "ok" and gpu.uuid)
