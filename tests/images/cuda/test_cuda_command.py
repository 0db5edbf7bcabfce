from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.images.commands.build import Build, build
from paddock.images.errors import BuildError, BuildInputError
from tests.support import docker
from tests.support.performing import performed

ENGINE = """
    said = {"image inspect": json.dumps([{"Id": "sha256:1", "Size": 1, "Created": "now", "Config": {}}]),
            "network ls": "bridge\\n", "info --format": "{}", "--version": "Docker version 29.0.1, build 1"}
    if argv[0] == "run":
        sys.exit("cuda-builder: user 1 may not write to the folder at /output" if RUN else 0)
    print(said.get(" ".join(argv[:2]), "[]"))
"""


def _run(**flags: Any) -> Build:
    return Build(name="cuda-builder", run=True, **flags)


def test_an_architecture_that_cannot_be_compiled_is_refused_without_an_engine(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildInputError, match=r"CUDA 12\.8 does not yet compile for sm_103"):
        performed(build, root, _run(cuda="12.8", architectures=("10.3",), output=tmp_path / "out"))
    (tmp_path / "file").touch()
    with pytest.raises(BuildInputError, match=r"nothing can be written to .*/file/out"):
        performed(build, root, _run(output=tmp_path / "file" / "out"))
    with pytest.raises(BuildInputError, match="--cuda and --base exclude each other"):
        performed(build, root, _run(cuda="12.8", base="debian:12", output=tmp_path / "out"))
    with pytest.raises(BuildInputError, match="docker"):
        performed(build, root, _run(cuda="12.8", output=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fails", "message"), [(True, "may not write to the folder"), (False, "manifest.json cannot be read")]
)
def test_an_image_without_output_is_reported_by_stand_in_docker(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, message: str
) -> None:
    engine = docker.stand_in(tmp_path / "bin", ENGINE.replace("RUN", str(fails)))
    monkeypatch.setenv("PATH", engine.path)
    with pytest.raises(BuildError, match=message):
        performed(build, root, _run(cuda="12.8", output=tmp_path / "out"))
    (ran,) = [call["argv"] for call in engine.calls() if call["argv"][0] == "run"]
    assert f"{tmp_path / 'out'}:/output" in ran
