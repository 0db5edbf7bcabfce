"""Hands a bare `invoke` over to `./inv`, which has the tasks' packages."""

import os
import sys
from pathlib import Path

if any(name in {"invoke", "inv"} for name in (Path(sys.argv[0]).stem, Path(sys.argv[0]).parent.name)):
    _inv = str(Path(__file__).resolve().parent / "inv")
    os.execv(sys.executable, [sys.executable, _inv, *sys.argv[1:]])

from paddock.tasks import namespace as namespace
