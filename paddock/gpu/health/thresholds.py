"""Where health and monitoring draw their lines: each with the reason and who else draws it there."""

from __future__ import annotations

from dataclasses import dataclass

_PCI = "DCGM, diagnostic plugin pcie"


@dataclass(frozen=True, slots=True)
class Limit:
    value: float
    why: str
    source: str


UNCORRECTED = Limit(0, "results of a GPU that lost bits are not to be trusted until it is reset", "gcm, azurehpc")
SRAM_UNCORRECTED = Limit(4, "errors in the chip itself are mended by no spare row", "stas00/ml-engineering")
REMAPPED_UNCORRECTED = Limit(512, "the spare rows are all but used up", "azurehpc, DCGM health limits")
RETIRED_PAGES = Limit(63, "the table of retired pages is full at 64", "DCGM health limits")
RETIRED_PAGES_SOON = Limit(15, "pages retire faster than age explains", "DCGM health limits, soft")
NVLINK_ERRORS = Limit(
    100, "one second's worth of errors for a link that is to be replaced; no time of the count is told", "DCGM, CRC/s"
)
MARGIN = Limit(0, "at its limit the GPU slows itself down", "NVML, margin temperature")

NARROWEST_PCIE = {
    "10de:1eb8": Limit(8, "the T4 is built into slots of 8 lanes", _PCI),
    "10de:2237": Limit(8, "the A10G has 8 lanes", _PCI),
    "10de:27b8": Limit(8, "the L4 of EC2 G6 has 8 lanes", "AWS ParallelCluster, prolog"),
    "10de:26b9": Limit(8, "the L40S is built into slots of 8 lanes", _PCI),
}
"""Lanes that are enough, by PCI device; any other GPU needs as many as its best link or its like have."""

REPLAYS_PER_MINUTE_AND_LANE = {3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""By PCIe generation: what a link may repeat at a bit error rate of 1e-12 (DCGM, health limits)."""

# --- over time

THROTTLED = Limit(0.05, "shorter slowing-down is the governor at work", "Paddock; gpud alarms at 0.6 of 10 minutes")
POWER_CAPPED = Limit(
    0.5, "at its power limit a GPU works as it was bought to; half the time is worth a word", "Paddock"
)
BRAKED = Limit(0, "the power brake is pulled by the machine's power supply, never by work alone", "NVML, clock events")
IDLE_BELOW = Limit(5, "per cent of the time with a kernel running: less is the display or a probe", "Paddock")
IDLE = Limit(0.5, "a GPU that is idle most of the time could be lent to others", "Paddock")
BUSY = Limit(10, "per cent of the time with a kernel running: such a GPU is part of the job", "Paddock")
MEMORY_PRESSURE = Limit(0.95, "the next allocation of a few hundred MiB fails", "nvitop shows red from here; Paddock")
IMBALANCE = Limit(25, "points of utilisation between the GPUs of a job: the busiest waits for the others", "Paddock")


def replays_per_minute(generation: int, lanes: int) -> int | None:
    """What a PCIe link may repeat; None for a generation of which no source says."""
    from math import ceil

    rate = REPLAYS_PER_MINUTE_AND_LANE.get(generation)
    return None if rate is None else ceil(rate * lanes)
