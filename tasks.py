"""Hands a bare `invoke` over to `./inv`, which has the commands and their packages."""

import os
import sys
from pathlib import Path

_inv = str(Path(__file__).resolve().parent / "inv")
os.execv(sys.executable, [sys.executable, _inv, *sys.argv[1:]])
