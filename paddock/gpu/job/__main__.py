"""What the hooks of a job run: `python -I -m paddock.gpu.job started|completed RUNNER_PID`, and the sampler between."""

from __future__ import annotations

import sys
import time

BEGAN = time.monotonic()


def main(arguments: list[str]) -> int:
    """Ends with `started.REFUSED` where the job may not start. Whatever fails here is raised: the script that calls
    this lets the job go on."""
    match arguments:
        case ["started", runner]:
            from paddock.gpu.job.started import run

            return run(int(runner), began=BEGAN)
        case ["completed", _]:
            from paddock.gpu.job.completed import run as end

            end()
            return 0
        case ["sample", folder, runner]:
            from pathlib import Path

            from paddock.gpu.job.sampling import sample

            sample(Path(folder), int(runner))
            return 0
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
