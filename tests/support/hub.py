"""A server that speaks the part of the hub's API by which its client finds and fetches files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"
"""The commit of a branch main that nobody moved."""


@dataclass
class Hub:
    """Repositories by name, each a folder. `breaks` are the bytes after which each answer of a file is cut off.

    `page` is what stands between here and the hub; with `plain` it lists no sizes, and gives files from the first byte.
    """

    repos: dict[str, Path] = field(default_factory=dict)
    refs: dict[tuple[str, str], str] = field(default_factory=dict)
    """Commits by repository and name of a branch or tag."""
    commits: dict[tuple[str, str], Path] = field(default_factory=dict)
    """Folders by repository and commit."""
    gated: set[str] = field(default_factory=set)
    key: str = ""
    breaks: int | None = None
    page: bytes = b""
    plain: bool = False
    served: list[tuple[str, int]] = field(default_factory=list)
    """Files that were given, each with the bytes of it."""
    url: str = ""


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """Serve repositories, and have huggingface_hub ask there, with a cache of its own and without retries."""
    from huggingface_hub import constants, file_download

    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            words = [unquote(word) for word in urlparse(self.path).path.strip("/").split("/")]
            api = words[:2] == ["api", "models"]
            repo = "/".join(words[2:4] if api else words[:2])
            asked = words[5] if api and words[4:5] == ["revision"] else "main" if api else words[3]
            commit = hub.refs.get((repo, asked), SHA if asked == "main" else asked)
            folder = hub.commits.get((repo, commit), hub.repos.get(repo) if commit == SHA else None)
            if hub.page:
                self.give(hub.page)
            elif folder is None and repo in hub.repos:
                self.fail(404, "RevisionNotFound")
            elif folder is None:
                self.fail(401, "RepoNotFound")
            elif repo in hub.gated and self.headers.get("authorization") != f"Bearer {hub.key}":
                self.fail(403, "GatedRepo")
            elif api:
                self.listed(repo, commit, folder)
            elif (file := folder / "/".join(words[4:])).is_file():
                self.file(file, commit, body)
            else:
                self.fail(404, "EntryNotFound")

        def listed(self, repo: str, commit: str, folder: Path) -> None:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            siblings = [
                {"rfilename": str(path.relative_to(folder)), "size": None if hub.plain else path.stat().st_size}
                for path in files
            ]
            self.give(json.dumps({"id": repo, "modelId": repo, "sha": commit, "siblings": siblings}).encode())

        def file(self, path: Path, commit: str, body: bool) -> None:
            size = path.stat().st_size
            begin, end, status = 0, size, 200
            if (wanted := self.headers.get("Range")) and not hub.plain:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end, status = int(first), min(size, int(last) + 1 if last else size), 206
            with path.open("rb") as opened:
                opened.seek(begin)
                data = opened.read(end - begin if body else 0)
            digest = hashlib.sha256(path.read_bytes() if size < 2**26 else path.name.encode()).hexdigest()
            more = {
                "ETag": f'"{digest}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes",
                "X-Linked-Size": str(size),
            }  # fmt: skip
            if status == 206:
                more["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            self.give(data, status, more | {"Content-Length": str(end - begin)}, body, path.name)

        def give(
            self, data: bytes, status: int = 200, more: dict[str, str] | None = None, body: bool = True, name: str = ""
        ) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(data)), **(more or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if not body:
                return
            cut = hub.breaks if name.endswith(".gguf") else None
            if name:
                hub.served.append((name, len(data[:cut])))
            self.wfile.write(data[:cut])
            if cut is not None and cut < len(data):
                self.close_connection = True

        def fail(self, status: int, code: str) -> None:
            self.give(b"{}", status, {"X-Error-Code": code, "X-Error-Message": code})

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**16)  # a piece that is cut off is lost
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
