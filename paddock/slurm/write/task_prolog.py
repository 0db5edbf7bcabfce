"""Program that Slurm runs before every task of a job, and whose output changes the task's environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.gpu.render.rendered import File, headed

NAME = "task-prolog.sh"
_TRANSLATION = "# Slurm counts the GPUs that it has;"
"""Beginning of the part that is for a node whose driver counts more GPUs than Slurm."""


def task_prolog(uuids: Sequence[str] = ()) -> File:
    """Return the program. `uuids` are those of Slurm's GPUs in its order, where the driver counts more than Slurm."""
    text = Path(__file__).with_suffix(".sh").read_text(encoding="utf-8")
    cases = "".join(f"      {number}) uuid={uuid} ;;\n" for number, uuid in enumerate(uuids))
    whole = text.replace("      # cases\n", cases) if uuids else text.partition(_TRANSLATION)[0]
    return headed(NAME, whole, 0o755)
