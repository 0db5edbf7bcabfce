"""The wheel that a node installs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from paddock.console.output import PRINTED_JSON
from paddock.images.commands.build import Build, build
from paddock.images.errors import BuildInputError
from paddock.images.recipes.wheels import PROJECT
from tests.support.performing import performed

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def program(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `paddock` as an installer makes it of the wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("node")
    performed(build, root, Build(name="wheel", output=folder / "dist"))
    environment = {**os.environ, "UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    uv = str(Path(sys.executable).parent / "uv")
    python = str(folder / "venv/bin/python")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True)
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, *map(str, (folder / "dist").iterdir())]
    subprocess.run(install, check=True, env=environment)
    purelib = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(purelib, check=True, capture_output=True, text=True).stdout.strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv/bin/paddock"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PADDOCK_PROGRAM"}
    return subprocess.run(
        [str(program), *words], cwd=program.parent, env=environment, capture_output=True, text=True, check=False
    )


def test_the_installed_program_answers(program: Path) -> None:
    from paddock import __version__

    assert run(program, "--version").stdout == f"paddock {__version__}\n"
    gpus = json.loads(run(program, "gpu.list", "--json").stdout)["gpus"]
    smoke = run(program, "smoke", "--tier", "1", "--json")
    assert gpus or (smoke.returncode, json.loads(smoke.stdout)["verdict"]) == (5, "skip")
    assert run(program, "serve.plan", "tiny", "--backend", "cpu").returncode == 0


def test_it_shows_what_works_on_a_node_by_its_own_name(program: Path) -> None:
    greeting, listing = run(program).stdout, run(program, "--list").stdout
    assert re.findall(r"^  (paddock \w+\.\w+)", greeting, re.M) == [
        *("paddock gpu.list", "paddock serve.plan", "paddock slurm.submit"),
    ]
    named = set(re.findall(r"^  ([\w.-]+)  ", listing, re.M))
    assert {"gpu.list", "smoke", "serve.up", "bench", "slurm.cloud", "catalog"} <= named
    assert not named & {"plan", "lab.up", "images.build", "slurm.configure", "test"}
    assert "no command is called 'gpu.lst'\n    fix: did you mean gpu.list?" in run(program, "gpu.lst").stderr
    assert "`paddock --list` shows the commands" in run(program, "zzz").stderr
    for name in ("plan", "test", "slurm.configure"):
        refused = run(program, name)
        assert (refused.returncode, "expected: a checkout" in refused.stderr) == (2, True), refused.stderr
    assert run(program, "lab", "--help").stdout == "The commands of lab need a checkout.\n"


def test_the_wheel_holds_what_its_modules_import(root: Path) -> None:
    paths = [
        file for part in PROJECT for file in ([root / part] if part.endswith(".py") else (root / part).rglob("*.py"))
    ]
    held = {_module(file.relative_to(root)) for file in paths}
    # Commands of this repository name rooms of a checkout, and `slurm.configure` builds an image from one.
    missing = {
        f"{file.relative_to(root)}: {name}"
        for file in paths
        if not file.is_relative_to(root / "paddock/tasks")
        for name in _imports(file, root) - held
        if not name.startswith("paddock.images")
    }
    assert sorted(missing) == [], "paddock.images.recipes.wheels.PROJECT says what the wheel holds"


def _imports(file: Path, root: Path) -> set[str]:
    """Return the modules of this project that a file imports, inside functions too."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            names |= {node.module, *(name for name in inside if (root / f"{name.replace('.', '/')}.py").is_file())}
    return {name for name in names if name.partition(".")[0] in {"paddock", "infra", "policy"}}


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_the_place_of_the_wheel_is_json_too(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    performed(build, root, Build(name="wheel", output=tmp_path / "new" / "dist", json=PRINTED_JSON))
    document = json.loads(capsys.readouterr().out)
    assert Path(document["wheel"]).stat().st_size == document["bytes"]


def test_a_folder_that_is_a_file_is_refused_before_the_build(root: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").touch()
    with pytest.raises(BuildInputError, match="nothing can be written to"):
        performed(build, root, Build(name="wheel", output=tmp_path / "dist"))
