"""Program of the job hooks: `python -I -m paddock.gpu.job_hooks started|completed RUNNER_PID`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from paddock.process import read_stat


def main(arguments: list[str]) -> int:
    """Return `started.REFUSED` if the job may not start. Errors are raised: the script lets the job continue."""
    match arguments:
        case ["started", runner]:
            from paddock.gpu.job_hooks.started import run

            return run(int(runner), began_at=time.monotonic() - _age())
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
    """Return the seconds since this process started, which include loading Python from a cold disk."""
    stat = read_stat("self")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start / os.sysconf("SC_CLK_TCK") if stat else 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
