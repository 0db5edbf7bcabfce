"""Known faults read again: GitHub's answers are reported, and no row changes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddock.catalog import _data
from paddock.catalog.faults import FILE
from paddock.catalog.refresh import github
from tests.support.http_server import Handler, serving

ROWS = {
    "sources": [
        {"key": "a", "url": "https://github.com/acme/nodes/issues/7", "as_of": "2026-11-01", "state": "closed"},
        {"key": "b", "url": "https://github.com/acme/nodes/pull/8", "as_of": "2026-11-01"},
        {"key": "c", "url": "https://github.com/acme/nodes/blob/main/CHANGELOG.md", "as_of": "2026-11-01"},
    ],
    "repositories": [{"software": "nodes", "repository": "acme/nodes", "read": "v1.9.0"}],
}
ANSWERS: dict[str, Any] = {
    "/repos/acme/nodes/issues/7": {"state": "closed"},
    "/repos/acme/nodes/issues/8": {"state": "closed"},
    "/repos/acme/nodes/releases?per_page=100": [{"tag_name": name} for name in ("v1.9.0", "v1.10.0", "helm-2.0.0")],
}


def test_only_what_differs_from_the_rows_is_said() -> None:
    state, release = github.noticed(ROWS, ANSWERS.__getitem__)
    assert state == "https://github.com/acme/nodes/pull/8 is closed, it was not looked at on 2026-11-01"
    assert release == "nodes: the notes of v1.10.0 are not read; the last read are of v1.9.0"
    same = {**ANSWERS, "/repos/acme/nodes/releases?per_page=100": []}
    assert github.noticed({**ROWS, "sources": ROWS["sources"][:1]}, same.__getitem__) == ()


def test_an_issue_that_was_opened_again_is_said() -> None:
    opened = {**ANSWERS, "/repos/acme/nodes/issues/7": {"state": "open"}}
    assert "issues/7 is open, it was closed on 2026-11-01" in github.noticed(ROWS, opened.__getitem__)[0]


class _Answer(Handler):
    status, body_text = 200, ""

    def do_GET(self) -> None:
        self.send(self.status, self.body_text or json.dumps(ANSWERS.get(self.path, {})))


@pytest.mark.parametrize(("status", "text", "why"), [
    (403, "", "GitHub answers 403 to /repos/x; GITHUB_TOKEN raises"),
    (404, "", "GitHub answers 404 to /repos/x"),
    (200, "<html>", "GitHub does not answer /repos/x"),
])  # fmt: skip
def test_an_answer_that_is_none_says_why(status: int, text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    handler = type("Answer", (_Answer,), {"status": status, "body_text": text or "{}"})
    with serving(handler) as url:
        monkeypatch.setenv("GITHUB_API_URL", url + "/")
        with pytest.raises(github.NotAnswered, match=why.split(";")[0]) as raised:
            github.answer("/repos/x")
    assert why in str(raised.value)


def test_nobody_at_the_address_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    with pytest.raises(github.NotAnswered, match="GitHub does not answer /repos/x"):
        github.answer("/repos/x")


def test_the_token_does_not_follow_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    seen: list[str | None] = []

    class Renamed(Handler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            if len(seen) == 1:
                self.send(301, "", {"Location": "/repositories/7"})
            else:
                self.send(200, {"state": "open"})

    with serving(Renamed) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        assert github.answer("/repos/x") == {"state": "open"}
    assert seen == ["Bearer a-token", None]


def test_our_own_rows_are_all_asked_for() -> None:
    asked: list[str] = []

    def ask(path: str) -> Any:
        asked.append(path)
        return [] if "releases" in path else {"state": "closed"}

    content = _data.document(FILE)
    github.noticed(content, ask)
    issues = [source for source in content["sources"] if "/issues/" in source["url"] or "/pull/" in source["url"]]
    assert len(asked) == len(issues) + len(content["repositories"])
    assert all(urlsplit(path).path.startswith("/repos/") for path in asked)
