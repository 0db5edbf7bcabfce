"""Every limit of health and monitoring, with its reason and its source. No other module holds a limit of its own."""

from __future__ import annotations

from dataclasses import dataclass

_PCI = "DCGM, diagnostic plugin pcie"


@dataclass(frozen=True, slots=True)
class Limit:
    value: float
    why: str
    source: str


UNCORRECTED = Limit(0, "results of a GPU that lost bits are not to be trusted until it is reset", "gcm, azurehpc")
SRAM_UNCORRECTED = Limit(4, "no spare row repairs errors in the chip itself", "stas00/ml-engineering")
REMAPPED_UNCORRECTED = Limit(512, "the spare rows are all but used up", "azurehpc, DCGM health limits")
RETIRED_PAGES = Limit(63, "the table of retired pages is full at 64", "DCGM health limits")
RETIRED_PAGES_SOON = Limit(15, "pages retire faster than age explains", "DCGM health limits, soft")
NVLINK_ERRORS = Limit(100, "DCGM's limit for one second; the counter has no time", "DCGM, CRC/s")
MARGIN = Limit(0, "at its limit the GPU slows itself down", "NVML, margin temperature")

NARROWEST_PCIE = {
    "10de:1eb8": Limit(8, "the T4 is built into slots of 8 lanes", _PCI),
    "10de:2237": Limit(8, "the A10G has 8 lanes", _PCI),
    "10de:27b8": Limit(8, "the L4 of EC2 G6 has 8 lanes", "AWS ParallelCluster, prolog"),
    "10de:26b9": Limit(8, "the L40S is built into slots of 8 lanes", _PCI),
}
"""Sufficient lanes by PCI device; any other GPU needs as many as its widest link or as others of its model have."""

REPLAYS_PER_MINUTE_AND_LANE = {3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""By PCIe generation: replays that a bit error rate of 1e-12 explains (DCGM, health limits)."""

# --- over time

THROTTLED = Limit(0.05, "the governor slows down for shorter times", "Paddock; gpud alarms at 0.6 of 10 minutes")
POWER_CAPPED = Limit(0.5, "at its power limit a GPU works as designed; half of the time is worth a note", "Paddock")
BRAKED = Limit(0, "the machine's power supply engages the brake, never work alone", "NVML, clock events")
IDLE_BELOW = Limit(5, "per cent of the time with a kernel running: less is the display or a probe", "Paddock")
IDLE = Limit(0.5, "a GPU that is idle most of the time could be lent to others", "Paddock")
BUSY = Limit(10, "per cent of the time with a kernel running: such a GPU is part of the job", "Paddock")
MEMORY_PRESSURE = Limit(0.95, "the next allocation of a few hundred MiB fails", "nvitop shows red from here; Paddock")
IMBALANCE = Limit(25, "points of utilisation between the GPUs of a job: the busiest waits for the others", "Paddock")


def replays_per_minute(generation: int, lanes: int) -> int | None:
    """Return the replays a PCIe link may have; None for a generation without a source."""
    from math import ceil

    rate = REPLAYS_PER_MINUTE_AND_LANE.get(generation)
    return None if rate is None else ceil(rate * lanes)
