"""The task decorator, and the project's folder."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from invoke import tasks

# One letter a flag would make `plan -h` mean --html, and move with every flag that is added.
task = partial(tasks.task, auto_shortflags=False)

ROOT = Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()
"""The project: where the stack files and the Pulumi program are."""
