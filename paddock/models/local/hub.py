"""Models of the Hugging Face Hub, or of a server that speaks its API: `hf://OWNER/REPO[@REVISION][/FILE]`.

`huggingface_hub` knows the address (HF_ENDPOINT), the key (HF_TOKEN), the cache and whether there is a network at all
(HF_HUB_OFFLINE). Its own downloads (2.4) throw away what they have when they are interrupted; here a part is kept
next to the cache's blobs, continued, and handed to the cache once it is whole.
"""

from __future__ import annotations

import contextlib
import os
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
_FORM = "hf://OWNER/REPO[@REVISION][/FILE.gguf], on the branch main where no revision is named"


@dataclass(frozen=True, slots=True)
class _At:
    """A repository at a branch, a tag or a commit."""

    repo: str
    revision: str = ""
    """As it was named; empty for the branch main."""

    @classmethod
    def of(cls, named: re.Match[str]) -> _At:
        return cls(named["repo"], unquote(named["revision"] or ""))

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
        with _in_words(reference, where):
            chosen = _choose(reference, where)
            if _offline():
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
    with _in_words(reference, where):
        chosen = _choose(reference, where)
    return PREFIX + "/".join(filter(None, (f"{_At(chosen.repo, chosen.commit)}", chosen.main)))


def fetch(reference: str, progress: Progress = silent, where: str = "MODEL") -> Path:
    """Return the file or the folder of a reference on this machine, with all parts of a model that has several.

    What the cache has is not asked for again, and a part that an earlier call left is continued. Raises ModelError.
    """
    with _in_words(reference, where):
        chosen = _choose(reference, where)
        if not _offline():
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
    check_room(blobs, sum(chosen.sizes[name] - there[name] for name in absent), f"{chosen.repo} ({_size(total)})")
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
            raise _Interrupted(failed, part.stat().st_size, fact.size) from None
        except Exception as failed:
            file.flush()
            raise _Interrupted(failed, part.stat().st_size, fact.size) from None
    part.replace(blob)


class _Interrupted(Exception):
    """The hub went away in the middle of a file."""

    def __init__(self, failed: Exception, there: int, size: int) -> None:
        self.failed, self.there, self.size = failed, there, size
        super().__init__(str(failed))


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


def _choose(reference: str, where: str) -> _Chosen:
    """Return the files that a reference means. Raises ModelError for one that means none, or several models."""
    named = _NAME.fullmatch(reference)
    if named is None or ".." in unquote(named["revision"] or ""):
        raise error(f"{where}: {reference} is not a model of the hub", _FORM)
    repo, file = _At.of(named), named["file"]
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
    texts = [f"{name} ({_size(sizes[name])})" for name in sorted(names)[:_MOST_NAMED]]
    return ", ".join([*texts, *([f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else [])])


def _listed(at: _At) -> tuple[str, dict[str, int]]:
    """Return the commit of a repository and its files with their sizes; without a network those of the cache."""
    import huggingface_hub as library

    if not _offline():
        asked = at.revision or None
        info = library.HfApi().model_info(at.repo, revision=asked, files_metadata=True, timeout=_ANSWER_S)
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


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.is_offline_mode())


@contextlib.contextmanager
def _in_words(reference: str, where: str) -> Iterator[None]:
    """Say what the library raises as a ModelError, begun by `where`."""
    try:
        import huggingface_hub.errors as of
        from huggingface_hub import constants
    except ModuleNotFoundError:
        raise error(
            f"{where}: {reference} is a model of the hub, and huggingface_hub is not installed here",
            fix="./inv in a checkout installs it, or pip install huggingface_hub",
        ) from None
    named = _NAME.fullmatch(reference)
    repo = named["repo"] if named else reference
    try:
        yield
    except ModelError:
        raise
    except _Interrupted as gone:
        raise error(
            f"{where}: {constants.ENDPOINT} went away in the middle of a file of {repo}: {_size(gone.there)} of "
            f"{_size(gone.size)} are here ({_line(gone.failed)})",
            fix="run it again: it continues where it ended",
        ) from None
    except of.GatedRepoError:
        raise error(
            f"{where}: {repo} is available to those who accept its licence",
            "HF_TOKEN, the key of an account that has accepted it",
            f"accept it at {constants.ENDPOINT}/{repo}, and set HF_TOKEN",
        ) from None
    except of.RevisionNotFoundError:
        raise error(
            f"{where}: {repo} has no revision {_At.of(named).revision if named else ''}",
            "a branch, a tag or a commit that its page lists; a / in a name is written %2F",
        ) from None
    except of.RepositoryNotFoundError:
        key = "the key in HF_TOKEN does not see it" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
        raise error(
            f"{where}: {constants.ENDPOINT} shows no repository {repo}: it is not there, or private ({key})",
            "OWNER/REPO as its page names it",
        ) from None
    except (of.LocalEntryNotFoundError, of.OfflineModeIsEnabled) as failed:
        offline = "HF_HUB_OFFLINE is set" if _offline() else f"{constants.ENDPOINT} does not answer"
        raise error(
            f"{where}: {reference} is not whole in {constants.HF_HUB_CACHE}, and {offline}"
            + ("" if _offline() else f" ({_line(failed.__cause__ or failed)})"),
            fix="fetch it where there is a network, with the same HF_HOME" if _offline() else "look at the network",
        ) from None
    except of.EntryNotFoundError as failed:
        raise error(f"{where}: {repo} has no such file: {_line(failed)}") from None
    except of.HfHubHTTPError as failed:
        status = failed.response.status_code
        key = " (HF_TOKEN)" if status in (401, 403) else ""
        raise error(f"{where}: {constants.ENDPOINT} answers {status}{key} for {repo}: {_line(failed)}") from None
    except of.HFValidationError:
        raise error(f"{where}: {reference} is not a model of the hub", _FORM) from None
    except UnicodeEncodeError:
        raise error(f"{where}: HF_TOKEN has characters that no key has", "the key of an account, in ASCII") from None
    except (ValueError, KeyError, TypeError) as failed:
        raise error(
            f"{where}: {constants.ENDPOINT} does not answer as a hub does ({type(failed).__name__}: {_line(failed)})",
            "the address of a hub",
            "look at HF_ENDPOINT, and at what is between here and there",
        ) from None
    except OSError as failed:
        text = failed.strerror or _line(failed)
        raise error(f"{where}: {reference} cannot be downloaded: {text}", fix="look at the disk, or HF_HOME") from None
    except Exception as failed:
        if type(failed).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "requests"):
            raise
        raise error(
            f"{where}: {constants.ENDPOINT} does not answer ({_line(failed)})",
            fix="look at the network, or name another by HF_ENDPOINT; HF_HUB_OFFLINE=1 takes what is here",
        ) from None


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10**9 else f"{count / 1e6:.1f} MB"


def _line(failed: BaseException) -> str:
    text = " ".join(str(failed).split()).partition(" For more information")[0]
    return text[:200] or type(failed).__name__
