"""Implementation of `inv wheel`, without Invoke."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from paddock.build.recipes import recipe, wheels
from paddock.terminal import NO_JSON, JsonOutput, json_errors


@json_errors
def build(root: Path, folder: Path, *, json: JsonOutput = NO_JSON) -> None:
    """Build the wheel of the packages of jobs into a folder. Raises BuildError."""
    recipe.check_writable(folder)
    with tempfile.TemporaryDirectory(prefix="paddock-dist-") as scratch:
        built = wheels.of_project(root, Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / built.name
        path.write_bytes(built.read_bytes())
    json.write({"wheel": str(path), "bytes": path.stat().st_size})
    if not json.replaces_text:
        sys.stdout.write(f"{path}\nto install it: uv tool install {path}, or pipx install {path}\n")
