"""Run one program on the device that the environment shows, and print its result as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

PROGRAMS = ("memory", "gemm", "transfer", "load", "allreduce", "peers")


def main(name: str, parameters: str) -> None:
    program = import_module(f"paddock.smoke.workers.{name}")
    try:
        result = program.run(**json.loads(parameters))
    except MemoryError as error:
        result = {"error": f"out of memory: {error}"}
    except RuntimeError as error:  # what torch raises for a device that fails
        result = {"error": str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
