"""A checkout in miniature: the real `inv` before a lock of one tiny package from an index in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.door import bootstrap

INSTALLERS = pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.e2e)])
"""uv, which is fast, and pip, which takes seconds for each environment."""
ENTRY = """\
import os, sys, tiny
if "PADDOCK_PARSE_ONLY" in os.environ:
    sys.exit(2 if "--typo" in sys.argv else 0)
print("tiny", tiny.VERSION, "args", sys.argv[1:], "caller", os.environ["PADDOCK_CWD"], "in", os.getcwd())
print("as", os.environ["PADDOCK_PROGRAM"])
"""
CLI = """\
import os, sys, tiny
def main():
    print("paddock of", os.environ["PADDOCK_ROOT"], sys.argv[1:])
"""


@pytest.fixture
def inv(root: Path) -> ModuleType:
    """Return the bootstrap as a module."""
    return bootstrap(root)


class Checkout:
    """A folder with `inv`, a program that prints what it got, and locks; nothing comes from the network."""

    def __init__(self, root: Path, inv: Path) -> None:
        self.root = root
        self.index = root.parent / "index"
        self.venv = root / ".venv"
        self.pins: dict[str, dict[str, str]] = {}
        (root / "locks").mkdir(parents=True)
        (root / "paddock/tasks").mkdir(parents=True)
        (root / "paddock/__main__.py").write_text(ENTRY)
        (root / "paddock/tasks/program.py").write_text(CLI)
        shutil.copy(inv.with_name("paddock") / "tasks/__init__.py", root / "paddock/tasks/__init__.py")
        shutil.copy(inv, root / "inv")
        shutil.copy(inv.with_name("tasks.py"), root / "tasks.py")
        self.bin = root.parent / "bin"
        self.bin.mkdir()
        # uv makes an environment in milliseconds; what pip does differently is tested on its own.
        (self.bin / "uv").symlink_to(Path(sys.executable).parent / "uv")
        self.env = {
            "HOME": str(root.parent),
            "PATH": os.pathsep.join([str(self.bin), "/usr/bin", "/bin"]),
            "PIP_INDEX_URL": self.index.as_uri(),
            "UV_NO_CACHE": "1",
            "CUDA_VISIBLE_DEVICES": "",  # whatever GPUs the machine has
        }

    def without_uv(self) -> None:
        (self.bin / "uv").unlink()

    def lock(self, version: str, *sets: str, package: str = "tiny") -> None:
        """Publish a version of a package and pin it in these sets, beside what they hold already."""
        folder = self.index / package
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"{package}-{version}-py3-none-any.whl"
        info = f"{package}-{version}.dist-info"
        files = {
            # Of another length for each version: bytecode is cached by size and second.
            f"{package}.py": f"VERSION = {version!r}\n" + "\n" * int(version[0]) + f"def main(): print({package!r})\n",
            **{f"{package}_data/{number}.txt": f"{number} of {version}" for number in range(20)},
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{package}={package}:main\n",
        }
        record = "".join(f"{name},,{len(text)}\n" for name, text in files.items())
        with zipfile.ZipFile(wheel, "w") as z:
            for name, text in files.items():
                z.writestr(name, text)
            z.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        for name in sets:
            pins = self.pins.setdefault(name, {})
            pins[package] = f"{package}=={version} \\\n    --hash=sha256:{digest}\n"
            (self.root / f"locks/{name}.txt").write_text("".join(pins.values()))

    def run(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=cwd or self.root,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.root / "inv"), *words]


def made(folder: Path, root: Path) -> Checkout:
    result = Checkout(folder / "project", root / "inv")
    result.lock("1.0", "base", "infra", "dev")
    return result


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Checkout:
    return made(tmp_path, root)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Checkout:
    """Return a checkout whose environment is made, for tests that leave it as it is."""
    checkout = made(tmp_path_factory.mktemp("ready"), root)
    checkout.run("list")
    return checkout
