"""Models of a hub: sized without their weights, fetched once, gone on with, and refused in words."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packages import need

need("huggingface_hub", "numpy")

from paddock.models import random_gguf, sources
from paddock.models.errors import ModelError
from paddock.models.local import hub
from paddock.models.shapes import shape
from tests.support.hub import SHA, Hub, serving
from tests.support.model_files import checkpoint, llama_8b, llama_tensors
from tests.support.model_files import gguf as written


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serving(monkeypatch, tmp_path) as server:
        server.repos["acme/tiny-GGUF"] = tmp_path / "acme"
        server.repos["acme/tiny-GGUF"].mkdir()
        random_gguf.write(tmp_path / "acme/tiny-Q8_0.gguf", shape("tiny"), "int8")
        written(tmp_path / "acme/mmproj-tiny-F16.gguf", {"general.architecture": "clip"}, [])
        yield server


REFERENCE = "hf://acme/tiny-GGUF"
OTHER = "f" * 40


def another(remote: Hub, tmp_path: Path) -> Path:
    """Give the repository a second commit, and return the model that it has there."""
    folder = remote.commits["acme/tiny-GGUF", OTHER] = tmp_path / "other"
    folder.mkdir()
    random_gguf.write(folder / "tiny-Q4_0.gguf", shape("tiny"), "int4")
    return folder / "tiny-Q4_0.gguf"


def test_a_file_is_sized_without_its_weights(remote: Hub, tmp_path: Path) -> None:
    remote.repos["big/8b"] = tmp_path / "big"
    (tmp_path / "big").mkdir()
    local = sources.of_path(llama_8b(tmp_path / "big/model.gguf"))
    model = sources.model("hf://big/8b")
    assert (model.parameters, model.bytes, model.format) == (local.parameters, local.bytes, "Q4_K")
    assert model.name == "big/8b"
    assert sum(size for _, size in remote.served) < 5_000_000 < 4_000_000_000 < model.bytes


def test_a_checkpoint_is_sized_by_its_headers(remote: Hub, tmp_path: Path) -> None:
    folder = remote.repos["acme/llama"] = checkpoint(tmp_path / "llama", model=llama_tensors())
    model = sources.model("hf://acme/llama")
    assert (model.parameters, model.source) == (sources.of_path(folder).parameters, "file")
    assert (hub.fetch("hf://acme/llama") / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_a_model_is_fetched_once_and_told(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    path = hub.fetch(REFERENCE, lambda *progress: told.append(progress))
    size = path.stat().st_size
    assert path.read_bytes() == (remote.repos["acme/tiny-GGUF"] / path.name).read_bytes()
    assert told[-1] == ("fetching tiny-Q8_0.gguf of acme/tiny-GGUF", size, size)
    remote.served.clear()
    assert hub.fetch(REFERENCE) == path
    assert remote.served == []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert hub.fetch(REFERENCE) == path
    assert sources.model(REFERENCE).format == "Q8_0"
    with pytest.raises(ModelError, match=r"is not whole in .*, and HF_HUB_OFFLINE is set"):
        hub.fetch("hf://acme/other")


def test_a_pinned_model_stays_when_main_moves(remote: Hub, tmp_path: Path) -> None:
    reference = hub.pinned(REFERENCE)
    assert reference == f"{REFERENCE}@{SHA}/tiny-Q8_0.gguf"
    another(remote, tmp_path)
    remote.refs["acme/tiny-GGUF", "main"] = OTHER
    assert hub.pinned(reference) == reference
    assert [hub.fetch(name).name for name in (reference, REFERENCE)] == ["tiny-Q8_0.gguf", "tiny-Q4_0.gguf"]


@pytest.mark.parametrize("revision", ["v1", OTHER, "refs/pr/1", "exp%2Flong"])
def test_a_revision_is_that_of_its_name(
    revision: str, remote: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = another(remote, tmp_path)
    remote.refs |= {("acme/tiny-GGUF", name): OTHER for name in ("v1", "refs/pr/1", "exp/long")}
    reference = f"{REFERENCE}@{revision}"
    assert (sources.model(reference).format, sources.model(REFERENCE).format) == ("Q4_0", "Q8_0")
    path = hub.fetch(reference)
    assert path.read_bytes() == file.read_bytes()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert hub.fetch(f"{reference}/tiny-Q4_0.gguf") == path
    with pytest.raises(ModelError, match="is not whole in"):
        hub.fetch(REFERENCE)


def test_an_interrupted_file_is_gone_on_with(remote: Hub) -> None:
    """The client asks again by itself for what is missing; what it gave up is there for the next call."""
    size = (remote.repos["acme/tiny-GGUF"] / "tiny-Q8_0.gguf").stat().st_size
    remote.breaks = 0
    with pytest.raises(
        ModelError, match=r"went away in the middle of a file of acme/tiny-GGUF: 0\.0 MB of .*\n.* it continues"
    ):
        hub.fetch(REFERENCE)
    remote.breaks = size // 3
    remote.served.clear()
    path = hub.fetch(REFERENCE)
    assert path.read_bytes() == (remote.repos["acme/tiny-GGUF"] / path.name).read_bytes()
    assert size <= sum(count for _, count in remote.served) < 1.1 * size
    assert len(remote.served) > 2


def test_a_part_of_an_earlier_call_is_not_fetched_again(remote: Hub, tmp_path: Path) -> None:
    import hashlib

    data = (remote.repos["acme/tiny-GGUF"] / "tiny-Q8_0.gguf").read_bytes()
    blobs = tmp_path / "hub/models--acme--tiny-GGUF/blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(data).hexdigest()}.part").write_bytes(data[:1_000_000])
    assert hub.fetch(REFERENCE).read_bytes() == data
    assert remote.served == [("tiny-Q8_0.gguf", len(data) - 1_000_000)]


def test_all_parts_of_a_model_come(remote: Hub, tmp_path: Path) -> None:
    folder = remote.repos["acme/split"] = tmp_path / "split"
    (folder / "Q8").mkdir(parents=True)
    data = (remote.repos["acme/tiny-GGUF"] / "tiny-Q8_0.gguf").read_bytes()
    for number in (1, 2):
        (folder / f"Q8/m-0000{number}-of-00002.gguf").write_bytes(data)
    path = hub.fetch("hf://acme/split")
    assert sorted(file.name for file in path.parent.iterdir()) == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    (folder / "Q8/m-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelError, match=r"one of 2 parts, and the hub has no Q8/m-00002-of-00002\.gguf"):
        sources.model("hf://acme/split/Q8/m-00001-of-00002.gguf")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf://acme/tiny--GGUF", "is not a model of the hub"),
        ("hf://acme/lfs", r"cannot read hf://acme/lfs/m\.gguf: it does not begin with GGUF"),
        ("acme/tiny-GGUF", "for one of a hub, name hf://acme/tiny-GGUF$"),
        ("https://hub.example/acme/tiny/blob/main/a/b.gguf", r"name hf://acme/tiny/a/b\.gguf$"),
        ("hf://acme", "is not a model of the hub"),
        ("hf://acme/absent", "shows no repository acme/absent: it is not there, or private"),
        ("https://hub.example/acme/tiny/tree/v1.2", r"name hf://acme/tiny@v1\.2$"),
        (f"{REFERENCE}@v9", "has no revision v9\n    expected: a branch, a tag or a commit"),
        (f"{REFERENCE}@..%2F..", "is not a model of the hub"),
        (f"{REFERENCE}/tiny-Q8.gguf", r"has no file tiny-Q8\.gguf\n    expected: did you mean tiny-Q8_0\.gguf"),
        (f"{REFERENCE}/mmproj-tiny-F16.gguf", "it is a projector"),
        ("hf://acme/gated", "HF_TOKEN, the key of an account that has accepted it"),
        ("hf://acme/two", r"has 2 models: a\.gguf \(0\.0 MB\), b\.gguf"),
        ("hf://acme/none", r"has nothing that can be served: README\.md"),
    ],
)
def test_what_is_no_model_is_refused_by_name(reference: str, message: str, remote: Hub, tmp_path: Path) -> None:
    for name, files in {"gated": [], "two": ["a.gguf", "b.gguf"], "none": ["README.md"], "lfs": ["m.gguf"]}.items():
        folder = remote.repos[f"acme/{name}"] = tmp_path / name
        folder.mkdir()
        for file in files:
            (folder / file).write_bytes(b"version https://git-lfs.example/spec/v1")
    remote.gated.add("acme/gated")
    with pytest.raises(ModelError, match=message):
        sources.model(reference)


def test_a_hub_that_does_not_answer_is_said(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    with pytest.raises(ModelError, match=rf"{address} does not answer"):
        sources.model(REFERENCE)


def test_what_answers_and_is_not_a_hub_is_said(remote: Hub) -> None:
    remote.page = b"<html>Sign in</html>"
    with pytest.raises(ModelError, match=r"does not answer as a hub does(.|\n)*fix: look at HF_ENDPOINT"):
        sources.model(REFERENCE)


def test_a_hub_that_is_silent_is_left(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ModelError, match="does not answer"):
            sources.model(REFERENCE)


def test_a_mirror_without_sizes_and_ranges_will_do(remote: Hub) -> None:
    remote.plain = True
    assert sources.model(REFERENCE).format == "Q8_0"


def test_a_full_disk_is_said_before_anything_is_fetched(remote: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ModelError, match="room for the whole file"):
        hub.fetch(REFERENCE)
    assert remote.served == []


def test_a_model_of_a_hub_is_measured_and_not_its_random_double(
    remote: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need("xllamacpp", "psutil")
    from paddock.tasks.program import main

    words = ["--engine", "llama.cpp", "--runs", "1", "--warm-up", "0", "--new", "2", "--prompt", "4", "--threads", "1"]
    file = tmp_path / "result.json"
    assert main(["paddock", "bench", "--model", REFERENCE, *words, "--json", str(file)]) == 0
    assert "fetching tiny-Q8_0.gguf of acme/tiny-GGUF 100 %" in capfd.readouterr().err
    assert '"acme/tiny-GGUF"' in file.read_text()
