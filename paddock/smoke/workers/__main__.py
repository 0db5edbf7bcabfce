"""Run one program on the device that the environment shows, and print its result as JSON.

It prints `{"ready": true}` once the device's library is there, and begins when it is sent a line: the time limit is for
the device alone, and the one who waits may let others finish first.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from paddock import children
from paddock.smoke.workers import faults
from paddock.smoke.workers.device import LIBRARIES

PROGRAMS = ("memory", "gemm", "transfer", "load", "allreduce", "peers")


def main(name: str, parameters: str) -> None:
    given = json.loads(parameters)
    library = LIBRARIES[given["device"]]
    try:
        import_module(library)
        program = import_module(f"paddock.smoke.workers.{name}")
    except Exception as error:  # libraries that are missing, or too new for this machine
        text = f"{library} cannot be loaded: {type(error).__name__}: {error}"
        _say({"unusable": text, "fix": f"give --python another interpreter with {library}"})
        return
    _say({"ready": True})
    if not children.next_line():
        return  # nobody waits any more
    children.end_with_parent()
    try:
        result = program.run(**given)
    except Exception as error:
        result = faults.explained(error)
    _say(result)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
