"""Models of the Hugging Face Hub, or of a server that speaks its API: `hf://OWNER/REPO[@REVISION][/FILE]`.

`huggingface_hub` knows the address (HF_ENDPOINT), the key (HF_TOKEN), the cache and whether there is a network at all
(HF_HUB_OFFLINE). Its own downloads (2.4) throw away what they have when they are interrupted; here a part is kept
next to the cache's blobs, continued, and handed to the cache once it is whole.
"""

from __future__ import annotations

import contextlib
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from paddock import files
from paddock.errors import did_you_mean
from paddock.models import gguf
from paddock.models.errors import ModelError, error
from paddock.models.gguf_head import read_head
from paddock.models.local.hub_failures import FORM, Interrupted, in_words, offline, size
from paddock.models.local.kept import Progress, check_room, silent

PREFIX = "hf://"
_NAME = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/pr/\d+|[\w.%-]+))?(?:/(?P<file>.+))?")
"""As the hub's own file system names them (huggingface.co/docs/huggingface_hub/guides/hf_file_system)."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[\w-]+")
_OF_CHECKPOINT = (".json", ".safetensors", ".model", ".txt", ".jinja")
_FIRST, _MOST = 2**20, 2**28
"""Bytes of a file that are asked for to find its head, and the most: a head has some 10 MB."""
_BY_HTTP = 50 * 10**9
"""Bytes above which the hub has a file by its own protocol alone."""
_MOST_NAMED = 12
_ANSWER_S = 30.0
"""Seconds in which the hub must begin to answer, and go on."""


@dataclass(frozen=True, slots=True)
class _At:
    """A repository at a branch, a tag or a commit."""

    repo: str
    revision: str = ""
    """As it was named; empty for the branch main."""

    def __str__(self) -> str:
        return f"{self.repo}@{quote(self.revision, safe='')}" if self.revision else self.repo

    @property
    def ref(self) -> Path:
        """The file in the cache that says which commit it was."""
        return _folder(self.repo) / "refs" / (self.revision or "main")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The files of a repository that make a model, with their sizes. `main` is the first .gguf; empty for a folder."""

    at: _At
    commit: str
    sizes: Mapping[str, int]
    main: str = ""

    @property
    def repo(self) -> str:
        return self.at.repo


def is_reference(name: str) -> bool:
    return name.startswith(PREFIX)


@contextlib.contextmanager
def heads(reference: str, where: str = "MODEL") -> Iterator[Path]:
    """Yield a file or folder with the heads of a model's files, as long as the hub's and without their weights.

    Without a network it is what the cache has. Raises ModelError.
    """
    folder: Path | None = None
    with contextlib.ExitStack() as stack:
        with _named(reference, where) as named:
            chosen = _choose(*named, where)
            if offline():
                path = _cached(chosen)
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddock-model-")))
                for name in chosen.sizes:
                    _head_into(folder / Path(name).name, chosen, name)
                path = folder / Path(chosen.main).name
        try:
            yield path
        except ModelError as refused:
            if folder is None:
                raise
            raise ModelError(str(refused).replace(str(folder), f"{PREFIX}{chosen.at}")) from None


def pinned(reference: str, where: str = "MODEL") -> str:
    """Return the reference at the commit, and with the file, that it means now. Raises ModelError."""
    with _named(reference, where) as named:
        chosen = _choose(*named, where)
    return PREFIX + "/".join(filter(None, (f"{_At(chosen.repo, chosen.commit)}", chosen.main)))


def fetch(reference: str, progress: Progress = silent, where: str = "MODEL") -> Path:
    """Return the file or the folder of a reference on this machine, with all parts of a model that has several.

    What the cache has is not asked for again, and a part that an earlier call left is continued. Raises ModelError.
    """
    with _named(reference, where) as named:
        chosen = _choose(*named, where)
        if not offline():
            _bring(chosen, progress)
        return _cached(chosen)


def _bring(chosen: _Chosen, progress: Progress) -> None:
    """Bring the files that are not here into the hub's cache."""
    import huggingface_hub as library

    absent = [name for name in chosen.sizes if not _in_cache(chosen, name)]
    blobs = _folder(chosen.repo) / "blobs"
    facts = {name: library.get_hf_file_metadata(_url(chosen, name)) for name in absent}
    parts = {name: blobs / f"{Path(fact.etag or '').name}.part" for name, fact in facts.items()}
    there = {name: part.stat().st_size if part.exists() else 0 for name, part in parts.items()}
    total = sum(chosen.sizes.values())
    check_room(blobs, sum(chosen.sizes[name] - there[name] for name in absent), f"{chosen.repo} ({size(total)})")
    done = total - sum(chosen.sizes[name] for name in absent)
    for name, fact in facts.items():
        before = done

        def told(count: int, name: str = name, before: int = before) -> None:
            progress(f"fetching {name} of {chosen.repo}", before + count, total)

        if chosen.sizes[name] <= _BY_HTTP and _ETAG.fullmatch(fact.etag or "") and fact.size is not None:
            _download(_url(chosen, name), fact, parts[name], told)
        library.hf_hub_download(chosen.repo, name, revision=chosen.commit)
        done += chosen.sizes[name]
    if chosen.at.revision != chosen.commit:
        chosen.at.ref.parent.mkdir(parents=True, exist_ok=True)
        files.write(chosen.at.ref, chosen.commit)


def _download(url: str, fact: Any, part: Path, told: Callable[[int], None]) -> None:
    """Write a file of the hub into the cache's blobs, from where an earlier call left off."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    blob = part.with_suffix("")
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as file:
        files.lock(file.fileno(), wait=True)
        if blob.exists():
            return
        there = part.stat().st_size
        if there > fact.size:
            there = 0
            file.truncate(0)
        told(there)
        try:
            http_get(
                url,
                file,
                resume_size=there,
                headers=build_hf_headers(),
                expected_size=fact.size,
                tqdm_class=_bar(told),
            )
        except OSError as failed:
            if failed.errno is not None:  # a full disk, not the network
                raise
            raise Interrupted(failed, part.stat().st_size, fact.size) from None
        except Exception as failed:
            file.flush()
            raise Interrupted(failed, part.stat().st_size, fact.size) from None
    part.replace(blob)


def _bar(told: Callable[[int], None]) -> Any:
    """Return a class of progress bars that tells the bytes of a file, and draws nothing."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *args: Any, **options: Any) -> None:
            self._bytes = int(options.get("initial") or 0)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self._bytes += int(n or 0)
            told(self._bytes)
            return None

    return Bar


def _head_into(path: Path, chosen: _Chosen, name: str) -> None:
    """Write a file of the same size as the hub's, with its head and nothing behind it."""
    size, wanted, data = chosen.sizes[name], _FIRST, b""
    gguf_file, weights = name.endswith(".gguf"), name.endswith(".safetensors")
    with path.open("wb") as file:
        while True:
            wanted = min(wanted, size)
            data += _range(chosen, name, len(data), wanted)
            file.seek(0)
            file.write(data)
            file.truncate(size)
            file.flush()
            if weights and len(data) >= 8:
                (length,) = struct.unpack("<Q", data[:8])
                if length + 8 <= len(data) or length > _MOST:
                    return
                wanted = length + 8
                continue
            if len(data) >= size or not (gguf_file or weights) or len(data) >= _MOST or _is_whole(path, len(data)):
                return
            wanted *= 4


def _is_whole(path: Path, read: int) -> bool:
    try:
        return read_head(path).start <= read
    except (OSError, ValueError):
        return False


def _range(chosen: _Chosen, name: str, begin: int, end: int) -> bytes:
    """Return bytes of a file: all of them where it is small and not weights."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    if end <= begin:
        return b""
    if not name.endswith((".gguf", ".safetensors")):
        end = chosen.sizes[name]
    headers = {**build_hf_headers(), "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    content = bytearray()
    with get_session().stream("GET", _url(chosen, name), headers=headers, timeout=_ANSWER_S) as answer:
        hf_raise_for_status(answer)
        skipped = begin if answer.status_code == 200 else 0  # it knows no ranges
        for piece in answer.iter_bytes():
            content += piece
            if len(content) >= skipped + end - begin:
                break
    return bytes(content[skipped : skipped + end - begin])


@contextlib.contextmanager
def _named(reference: str, where: str) -> Iterator[tuple[_At, str]]:
    """Yield the repository and the file that a reference names, and say what is raised as a ModelError."""
    named = _NAME.fullmatch(reference)
    revision = unquote((named and named["revision"]) or "")
    if named is None or ".." in revision:
        raise error(f"{where}: {reference} is not a model of the hub", FORM)
    with in_words(where, reference, named["repo"], revision):
        yield _At(named["repo"], revision), named["file"] or ""


def _choose(repo: _At, file: str, where: str) -> _Chosen:
    """Return the files that a reference means. Raises ModelError for one that means none, or several models."""
    commit, sizes = _listed(repo)
    if file:
        if file not in sizes:
            near = did_you_mean(file, sizes, _some(sizes, [name for name in sizes if name.endswith(".gguf")]))
            raise error(f"{where}: {repo} has no file {file}", near)
        if not file.endswith(".gguf"):
            raise error(f"{where}: {file} is not a model alone", "a .gguf file, or the repository", f"name hf://{repo}")
        return _Chosen(repo, commit, _with_parts(file, sizes, where), file)
    found = [name for name in sizes if name.endswith(".gguf") and not _is_projector(name)]
    firsts = [name for name in found if gguf.parts(Path(name))[0].as_posix() == Path(name).as_posix()]
    top = {name: size for name, size in sizes.items() if "/" not in name}
    if "config.json" in top and any(name.endswith(".safetensors") for name in top):
        return _Chosen(repo, commit, _of_checkpoint(top))
    if len(firsts) == 1:
        return _Chosen(repo, commit, _with_parts(firsts[0], sizes, where), firsts[0])
    if firsts:
        whole = {name: sum(_with_parts(name, sizes, where).values()) for name in firsts}
        raise error(
            f"{where}: {repo} has {len(firsts)} models: {_some(whole, firsts)}",
            "one of them by its name",
            f"name hf://{repo}/{min(whole, key=lambda name: (whole[name], name))}, or another",
        )
    raise error(
        f"{where}: {repo} has nothing that can be served: {_some(sizes, list(sizes)) or 'it is empty'}",
        "a .gguf file, or config.json with .safetensors",
        "take a repository that has one of them",
    )


def _is_projector(name: str) -> bool:
    return Path(name).name.lower().startswith("mmproj")


def _with_parts(file: str, sizes: Mapping[str, int], where: str) -> dict[str, int]:
    parts = [part.as_posix() for part in gguf.parts(Path(file))]
    if missing := [part for part in parts if part not in sizes]:
        raise error(f"{where}: {file} is one of {len(parts)} parts, and the hub has no {missing[0]}", "all parts")
    return {part: sizes[part] for part in parts}


def _of_checkpoint(top: Mapping[str, int]) -> dict[str, int]:
    """Return the files of a checkpoint: not the same weights again in the form of who trained them."""
    return {
        name: size
        for name, size in top.items()
        if name.endswith(_OF_CHECKPOINT) and not name.startswith(("consolidated", "."))
    }


def _some(sizes: Mapping[str, int], names: Sequence[str]) -> str:
    texts = [f"{name} ({size(sizes[name])})" for name in sorted(names)[:_MOST_NAMED]]
    return ", ".join([*texts, *([f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else [])])


def _listed(at: _At) -> tuple[str, dict[str, int]]:
    """Return the commit of a repository and its files with their sizes; without a network those of the cache."""
    import huggingface_hub as library

    if not offline():
        info = library.HfApi().model_info(at.repo, revision=at.revision or None, files_metadata=True, timeout=_ANSWER_S)
        commit, sizes = info.sha or at.revision or "main", {file.rfilename: file.size for file in info.siblings or ()}
        for name, size in sizes.items():
            if size is None and name.endswith((".gguf", *_OF_CHECKPOINT)):  # a mirror may not list it
                url = library.hf_hub_url(at.repo, name, revision=commit)
                sizes[name] = library.get_hf_file_metadata(url).size
        return commit, {name: size or 0 for name, size in sizes.items()}
    commit = at.revision if _COMMIT.fullmatch(at.revision) else at.ref.read_text().strip() if at.ref.is_file() else ""
    folder = _folder(at.repo) / "snapshots" / commit
    if not commit or not folder.is_dir():
        raise library.errors.LocalEntryNotFoundError(f"nothing of {at}")
    there = [path for path in folder.rglob("*") if path.is_file()]
    return commit, {path.relative_to(folder).as_posix(): path.stat().st_size for path in there}


def _folder(repo: str) -> Path:
    """Return a repository's folder in the cache (huggingface.co/docs/huggingface_hub/guides/manage-cache)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, f"models--{repo.replace('/', '--')}")


def _cached(chosen: _Chosen) -> Path:
    import huggingface_hub as library

    paths = [
        Path(library.hf_hub_download(chosen.repo, name, revision=chosen.commit, local_files_only=True))
        for name in chosen.sizes
    ]
    return paths[list(chosen.sizes).index(chosen.main)] if chosen.main else paths[0].parent


def _in_cache(chosen: _Chosen, name: str) -> bool:
    import huggingface_hub as library

    return isinstance(library.try_to_load_from_cache(chosen.repo, name, revision=chosen.commit), str)


def _url(chosen: _Chosen, name: str) -> str:
    import huggingface_hub as library

    return str(library.hf_hub_url(chosen.repo, name, revision=chosen.commit))
