"""The site of the documentation, built by Zensical from `docs` as `zensical.toml` says."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from paddock.console.output import console
from paddock.errors import PaddockError, printable
from paddock.site.links import broken_links

FOLDER = Path("build/site")
PROGRAM = "zensical"
_PAGES, _CONFIG = "docs", "zensical.toml"


class SiteError(PaddockError):
    """The site cannot be built as it is."""


def build(root: Path) -> Path:
    """Build the site strictly and return its folder. Raises SiteError, also where a link or a page is wrong."""
    broken = broken_links(root)
    if broken:
        lines = "\n".join(f"    {link}" for link in broken)
        raise SiteError(f"the documentation has {len(broken)} broken links:\n{lines}")
    project = _project(root)
    completed = subprocess.run(
        [program(), "build", "--strict", "--clean"], cwd=project, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        output = re.sub(r"\x1b\[[\d;]*m", "", completed.stdout + completed.stderr)
        raise SiteError(f"zensical refuses the documentation:\n{printable(output.partition('Traceback')[0].strip())}")
    return project / FOLDER


def _project(root: Path) -> Path:
    """Return the folder that Zensical works in: the checkout, or a copy of its pages where that cannot be written.

    Raises SiteError where neither can.
    """
    if os.access(root, os.W_OK):
        return root
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    copy = cache / "paddock" / f"docs-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    try:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root / _PAGES, copy / _PAGES, copy_function=shutil.copyfile)
        shutil.copyfile(root / _CONFIG, copy / _CONFIG)
    except OSError as error:
        raise SiteError(
            f"{root} cannot be written, and {copy} neither: {error.strerror or error}"
            "\n    expected: a folder for the site\n    fix: XDG_CACHE_HOME=FOLDER"
        ) from None
    return copy


def show(root: Path, port: int) -> None:
    """Serve the site on this machine's loopback until Ctrl-C, and build it again after each change."""
    address = f"127.0.0.1:{port}"
    console().print(f"http://{address} shows the site; Ctrl-C ends it")
    code = subprocess.run([program(), "serve", "--dev-addr", address], cwd=_project(root), check=False).returncode
    if code:
        raise SiteError(f"zensical cannot serve on {address} (see above)\n    fix: another --port")


def program() -> str:
    """Return Zensical's program: of this environment, or on PATH. Raises SiteError."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    zensical = shutil.which(PROGRAM, path=path)
    if zensical is None:
        raise SiteError(f"{PROGRAM} is not in this environment\n    fix: ./inv docs in a checkout, which installs it")
    return zensical
