"""Program of the job hooks: `python -I -m paddock.gpu.job_hooks started|completed RUNNER_PID`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Ends with `started.REFUSED` where the job may not start. Whatever fails here is raised: the script that calls
    this lets the job go on."""
    match arguments:
        case ["started", runner]:
            from paddock.gpu.job_hooks.started import run

            return run(int(runner), began=time.monotonic() - _age())
        case ["completed", _]:
            from paddock.gpu.job_hooks.completed import run as end

            end()
            return 0
        case ["sample", folder, runner]:
            from paddock.gpu.job_hooks.sampling import sample

            sample(Path(folder), int(runner))
            return 0
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2


def _age() -> float:
    """Seconds since this process was started: reading Python from a cold disk takes its share of them."""
    fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
