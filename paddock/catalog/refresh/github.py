"""Ask GitHub what has changed about known faults since their rows were written. It reports, and writes nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from paddock.catalog import _data
from paddock.catalog.faults import order

SECONDS = 10
"""Longest wait for an answer."""
_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")
_RELEASE = re.compile(r"v?\d+(\.\d+)*")
Ask = Callable[[str], Any]


class NotAnswered(Exception):
    """GitHub did not answer a question; the message says why."""


def noticed(content: _data.Document, ask: Ask | None = None) -> tuple[str, ...]:
    """Return what differs from the rows: the states of issues, and releases whose notes nobody has read.

    `ask` returns the JSON answer to a path of GitHub's API. Raises NotAnswered.
    """
    return (*_states(content, ask or answer), *_releases(content, ask or answer))


def _states(content: _data.Document, ask: Ask) -> Iterator[str]:
    for source in content["sources"]:
        if match := _ISSUE.fullmatch(source["url"]):
            state, was = ask(f"/repos/{match[1]}/issues/{match[2]}").get("state"), source.get("state")
            if state != was:
                yield f"{source['url']} is {state}, it was {was or 'not looked at'} on {source['as_of']}"


def _releases(content: _data.Document, ask: Ask) -> Iterator[str]:
    for row in content["repositories"]:
        tags = [release.get("tag_name", "") for release in ask(f"/repos/{row['repository']}/releases?per_page=100")]
        later = [tag for tag in tags if _RELEASE.fullmatch(tag) and order(tag) > order(row["read"])]
        if later:
            later.sort(key=order)
            yield f"{row['software']}: the notes of {', '.join(later)} are not read; the last read are of {row['read']}"


def answer(path: str) -> Any:
    """Return the answer of GitHub's API (GITHUB_API_URL, GITHUB_TOKEN where they are set). Raises NotAnswered."""
    token = os.environ.get("GITHUB_TOKEN")
    url = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/") + path
    headers = {"Accept": "application/vnd.github+json", "User-Agent": "paddock"}
    request = Request(url, headers=headers)  # noqa: S310 - GitHub's address, or one that the user set
    if token:  # not for the address that another one refers to
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - GitHub's address, or one that the user set
            return json.load(response)
    except HTTPError as error:
        error.close()
        limited = "; GITHUB_TOKEN raises the number of questions an hour" if error.code in (403, 429) else ""
        raise NotAnswered(f"GitHub answers {error.code} to {path}{limited}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise NotAnswered(f"GitHub does not answer {path}: {getattr(error, 'reason', error)}") from error
