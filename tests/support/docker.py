"""A program called docker that does what a test says, where there is no engine."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class StandIn:
    folder: Path

    @property
    def path(self) -> str:
        """Return a PATH with it before all others."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def calls(self) -> list[dict[str, Any]]:
        """Calls in order: `argv`, and the variables that the test asked for as `environ`."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


def stand_in(folder: Path, body: str = "", environ: Mapping[str, str] | tuple[str, ...] = ()) -> StandIn:
    """`body` is Python, run after the call was written down, with `calls` so far and `argv`."""
    folder.mkdir()
    head = f"""\
        #!{sys.executable}
        import json, os, sys, time
        argv = sys.argv[1:]
        with open({str(folder / "calls")!r}, "a") as log:
            variables = {{name: os.environ.get(name) for name in {tuple(environ)!r}}}
            log.write(json.dumps({{"argv": argv, "environ": variables}}) + "\\n")
        calls = [json.loads(line)["argv"] for line in open({str(folder / "calls")!r})]
        """
    program = folder / "docker"
    program.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    program.chmod(0o755)
    return StandIn(folder)
