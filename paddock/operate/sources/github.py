"""GitHub's REST API: the App that runners register with, or what a token may do."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from paddock.errors import one_line
from paddock.fleet import GitHub
from paddock.operate.sources.unavailable import NotFound, Unavailable

_PATIENCE = 10.0
_ATTEMPTS = 3
_PAGE = 100
_MOST_PAGES = 50
_TOKEN_SECONDS = 300
"""GitHub takes at most 600; the clock may be a minute off."""
_CLOCK_SLACK = 60
_LONGEST_WAIT = 5.0
"""Seconds that one request waits for a busy GitHub. What asks for more is RateLimited."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Body and headers of an answer; names of headers in lower case."""

    body: Any
    headers: dict[str, str] = field(default_factory=dict)


def api_address(github: GitHub) -> str:
    """Return the address of the REST API of the place where runners register."""
    parts = urlsplit(github.url)
    if parts.netloc == "github.com":
        return "https://api.github.com"
    if parts.netloc.endswith(".ghe.com"):
        return f"https://api.{parts.netloc}"
    return f"{parts.scheme}://{parts.netloc}/api/v3"


def app_token(app_id: str, key: str) -> str:
    """Return a token with which the App itself reads what it is. Raises Unavailable for a key that is none."""
    import jwt

    now = int(time.time())
    claims = {"iss": app_id, "iat": now - _CLOCK_SLACK, "exp": now + _TOKEN_SECONDS}
    try:
        return jwt.encode(claims, key.strip() + "\n", "RS256")
    except (ValueError, TypeError, jwt.PyJWTError):
        # The message may not hold any of it.
        raise Unavailable("the App's key is no private key in PEM form", "./inv github.app --key KEY.pem") from None


class GitHubReader:
    """Reads with one credential, which no message repeats."""

    def __init__(self, address: str, authorization: str) -> None:
        self.address, self._authorization = address, authorization
        self.rate: Mapping[str, str] = {}
        """Headers of the last answer: `x-ratelimit-remaining` and its kind say how many requests are left."""

    def read(self, path: str) -> Answer:
        """Return the answer of a path of the API. Raises Unavailable, NotFound."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, attempts: int = _ATTEMPTS) -> Answer:
        """Return the answer to a request. Raises Unavailable, NotFound, RateLimited."""
        for attempt in range(1, attempts + 1):
            try:
                answer = self._ask(method, path, body)
                self.rate = answer.headers
                return answer
            except _Again as again:
                if attempt == attempts:
                    raise Unavailable(str(again), "run it again in a minute") from None
                time.sleep(again.seconds)
        raise AssertionError("unreachable")

    def end_of_text(self, path: str, most: int) -> str:
        """Return the last `most` bytes of a text that the API refers to elsewhere, such as a log.

        What lies there is read without the credential. Raises Unavailable, NotFound.
        """
        try:
            with _OPENER.open(self._request("GET", path, None), timeout=_PATIENCE) as response:
                return _end(response, most)
        except urllib.error.HTTPError as error:
            with error:
                place = error.headers.get("Location", "") if error.code in (301, 302, 307, 308) else ""
                if not place:
                    raise _refusal(error, urlsplit(self.address).netloc, f"GET {path}") from None
        except (urllib.error.URLError, OSError) as error:
            raise Unavailable(f"{path}: {one_line(str(getattr(error, 'reason', error)))}") from None
        if urlsplit(place).scheme != urlsplit(self.address).scheme:
            raise Unavailable(f"{path} is kept at an address of another kind")
        try:
            with _OPENER.open(urllib.request.Request(place), timeout=_PATIENCE) as response:  # noqa: S310 - as the API's
                return _end(response, most)
        except (urllib.error.URLError, OSError) as error:
            # The address holds a signature.
            raise Unavailable(f"what {path} refers to cannot be read: {type(error).__name__}") from None

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> urllib.request.Request:
        return urllib.request.Request(  # noqa: S310 - the stack file's model takes http and https alone
            f"{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._authorization}",
                **({} if body is None else {"Content-Type": "application/json"}),
                "User-Agent": "paddock",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        host = urlsplit(self.address).netloc
        try:
            with _OPENER.open(self._request(method, path, body), timeout=_PATIENCE) as response:
                text = response.read()
                return Answer(json.loads(text) if text else None, {k.lower(): v for k, v in response.headers.items()})
        except urllib.error.HTTPError as error:
            raise _refusal(error, host, f"{method} {path}") from None
        except (urllib.error.URLError, OSError) as error:
            reason = one_line(str(getattr(error, "reason", error)))
            fix = "the network and the proxy of this machine; github.url of the stack"
            raise Unavailable(f"{host} does not answer: {reason}", fix) from None
        except ValueError:
            raise Unavailable(
                f"{host}{path} answers with something else than JSON", "github.url of the stack"
            ) from None

    def runners(self, github: GitHub) -> list[dict[str, Any]]:
        """Return the runners registered where the fleet's register. Raises Unavailable, NotFound."""
        return self.pages(f"{registration_path(github)}/actions/runners", "runners")

    def jobs(self, github: GitHub, job: str) -> list[dict[str, Any]]:
        """Return one job, `owner/repository/ID`, or the waiting ones of a repository. Raises Unavailable, NotFound."""
        if job:
            owner, repository, number = job.split("/")
            return [self.read(f"/repos/{owner}/{repository}/actions/jobs/{number}").body]
        if github.scope != "repository":
            raise Unavailable(
                "GitHub lists waiting jobs by repository, and runners here are an organisation's",
                "name the job by its address: https://.../actions/runs/N/job/M",
            )
        place = registration_path(github)
        runs = self.pages(f"{place}/actions/runs", "workflow_runs", "status=queued&")
        return [job for run in runs for job in self.pages(f"{place}/actions/runs/{int(run['id'])}/jobs", "jobs")]

    def pages(self, path: str, key: str, query: str = "") -> list[dict[str, Any]]:
        """Return every item under `key`, over all pages. `query` ends with `&`. Raises Unavailable, NotFound."""
        items: list[dict[str, Any]] = []
        for page in range(1, _MOST_PAGES + 1):
            more = self.read(f"{path}?{query}per_page={_PAGE}&page={page}").body.get(key) or []
            items += more
            if len(more) < _PAGE:
                return items
        raise Unavailable(f"{path}: more than {len(items)} of {key}")


def registration_path(github: GitHub) -> str:
    """Return the path of the place where runners register, in the REST API."""
    path = urlsplit(github.url).path.strip("/")
    return {"organisation": f"/orgs/{path}", "repository": f"/repos/{path}", "enterprise": f"/{path}"}[github.scope]


def installation_reader(github: GitHub, key: str) -> GitHubReader:
    """Return a reader with what the App's installation may do, or with a token as it is. Raises Unavailable."""
    address = api_address(github)
    if github.app is None or "PRIVATE KEY" not in key:
        return GitHubReader(address, key.strip())
    app = GitHubReader(address, app_token(github.app.id, key))
    answer = app.ask("POST", f"/app/installations/{github.app.installation}/access_tokens")
    return GitHubReader(address, str(answer.body["token"]))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the credential is for one host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class _Again(Exception):
    """GitHub is busy."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


def _end(response: Any, most: int) -> str:
    end = b""
    while piece := response.read(1 << 16):
        end = (end + piece)[-most:]
    return end.decode("utf-8", "replace")


def _wait(headers: Message) -> float:
    """Return the seconds after which GitHub takes requests again, as its answer says."""
    retry = headers.get("Retry-After") or ""
    if retry.isdecimal():
        return float(retry)
    reset = headers.get("X-RateLimit-Reset") or ""
    if headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal():
        return max(float(reset) - time.time(), 0.5)
    return 0.5


def _refusal(error: urllib.error.HTTPError, host: str, request: str) -> Exception:
    try:
        message = one_line(str(json.loads(error.read()).get("message", "")))
    except (ValueError, AttributeError, OSError):
        message = ""
    text = f"{host} answers {error.code} to {request}{f': {message}' if message else ''}"
    if error.code in (429, 502, 503, 504) or (error.code == 403 and "rate limit" in message.lower()):
        wait = _wait(error.headers)
        return _Again(text, wait) if wait <= _LONGEST_WAIT else RateLimited(text, wait)
    if error.code == 404:
        return NotFound(text)
    if error.code == 401:
        return Unauthorised(text)
    return Unavailable(text, "what the App or the token may do on GitHub")


class RateLimited(Unavailable):
    """GitHub takes no request for so many `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, f"run it again in {seconds:.0f} s")
        self.seconds = seconds


class Unauthorised(Unavailable):
    """GitHub does not accept the credential."""
