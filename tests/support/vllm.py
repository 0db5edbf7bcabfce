"""An environment of Python with a stand-in for vLLM, as another one beside Paddock's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests.support import vllm_server

VERSION = "0.33.0"


def write_environment(folder: Path) -> Path:
    """Make the environment, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    package = site / "vllm/entrypoints/openai"
    package.mkdir(parents=True)
    for part in (site / "vllm", site / "vllm/entrypoints", package):
        (part / "__init__.py").touch()
    shutil.copy(vllm_server.__file__, package / "api_server.py")
    (site / f"vllm-{VERSION}.dist-info").mkdir()
    (site / f"vllm-{VERSION}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")
    return folder / "bin/python"


def started(python: Path) -> Any:
    """Return what its last server was started with: its pid, `argv` and `environ`."""
    return json.loads((python.parent.parent / "started.json").read_text())
