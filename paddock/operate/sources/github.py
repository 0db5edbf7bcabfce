"""GitHub's REST API: the App that runners register with, or what a token may do."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
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
    """Return a token with which the App itself reads what it is. Raises Unavailable for anything but a private key."""
    import jwt

    now = int(time.time())
    claims = {"iss": app_id, "iat": now - _CLOCK_SLACK, "exp": now + _TOKEN_SECONDS}
    try:
        return jwt.encode(claims, key.strip() + "\n", "RS256")
    except (ValueError, TypeError, jwt.PyJWTError):
        # The message may not hold any of it.
        raise Unavailable("the App's key is not a private key in PEM form", "./inv init.github --key KEY.pem") from None


class GitHubReader:
    """Reads with one credential, which no message repeats."""

    def __init__(self, address: str, authorization: str, renew: Callable[[], str] | None = None) -> None:
        """`renew` returns another credential where this one is not accepted any more."""
        self.address, self._authorization, self._renew = address, authorization, renew
        self.rate: Mapping[str, str] = {}
        """Headers of the last answer: `x-ratelimit-remaining` and its kind say how many requests are left."""

    def read(self, path: str) -> Answer:
        """Return the answer of a path of the API. Raises Unavailable, NotFound."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, attempts: int = _ATTEMPTS) -> Answer:
        """Return the answer to a request. Raises Unavailable, NotFound, RateLimited."""
        for attempt in range(1, attempts + 1):
            try:
                answer = self._ask_with_renewal(method, path, body)
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
        except _CONNECTION as error:
            raise Unavailable(f"{path}: {one_line(str(getattr(error, 'reason', error)))}") from None
        if urlsplit(place).scheme != urlsplit(self.address).scheme:
            raise Unavailable(f"{path} is kept at an address of another kind")
        try:
            with _OPENER.open(urllib.request.Request(place), timeout=_PATIENCE) as response:  # noqa: S310 - as the API's
                return _end(response, most)
        except _CONNECTION as error:
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

    def _ask_with_renewal(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        try:
            return self._ask(method, path, body)
        except Unauthorised:
            if self._renew is None:
                raise
            self._authorization = self._renew()
            return self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        host = urlsplit(self.address).netloc
        try:
            with _OPENER.open(self._request(method, path, body), timeout=_PATIENCE) as response:
                text = response.read()
                return Answer(json.loads(text) if text else None, {k.lower(): v for k, v in response.headers.items()})
        except urllib.error.HTTPError as error:
            raise _refusal(error, host, f"{method} {path}") from None
        except _CONNECTION as error:
            reason = one_line(str(getattr(error, "reason", error)))
            fix = "the network and the proxy of this machine; github.url of the stack"
            raise Unavailable(f"{host} does not answer: {reason}", fix) from None
        except ValueError:
            raise Unavailable(
                f"{host}{path} answers with something other than JSON", "github.url of the stack"
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
        # A matrix has jobs that wait in a run that goes on.
        runs = {
            int(run["id"]): None
            for status in ("queued", "in_progress")
            for run in self.pages(f"{place}/actions/runs", "workflow_runs", f"status={status}&")
        }
        jobs = (job for run in runs for job in self.pages(f"{place}/actions/runs/{run}/jobs", "jobs"))
        return [job for job in jobs if job.get("status") == "queued"]

    def pages(self, path: str, key: str, query: str = "") -> list[dict[str, Any]]:
        """Return every item under `key`, or of a list where it is empty, over all pages. `query` ends with `&`.

        Raises Unavailable, NotFound.
        """
        items: list[dict[str, Any]] = []
        for page in range(1, _MOST_PAGES + 1):
            body = self.read(f"{path}?{query}per_page={_PAGE}&page={page}").body
            more = (body.get(key) if key else body) or []
            items += more
            if len(more) < _PAGE:
                return items
        raise Unavailable(f"{path}: more than {len(items)} of {key or 'them'}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by the names that it has today, and by the ids that it keeps."""

    owner: str
    owner_id: int
    name: str
    id: int
    created: date
    visibility: str = ""
    """`public`, `private` or `internal`; empty where GitHub did not say it."""

    @property
    def names(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def with_ids(self) -> str:
        """Form of `images.push.repository`, and of the repository in tokens that hold its ids."""
        return f"{self.owner}@{self.owner_id}/{self.name}@{self.id}"


def repository(reader: GitHubReader, names: str) -> Repository:
    """Return a repository, also by the names it had before it was renamed or moved. Raises Unavailable, NotFound."""
    try:
        found = reader.read(f"/repos/{names}").body
    except Moved as moved:
        if not moved.location.startswith(f"{reader.address}/"):
            raise
        found = reader.read(moved.location.removeprefix(reader.address)).body
    owner = found["owner"]
    created = datetime.fromisoformat(found["created_at"]).date()
    return Repository(
        str(owner["login"]), int(owner["id"]), str(found["name"]), int(found["id"]), created, visibility(found)
    )


def visibility(repository: Mapping[str, Any]) -> str:
    """Return who sees a repository, as GitHub's REST API has it: `public`, `private` or `internal`; empty if unsaid."""
    if "private" in repository and not repository.get("visibility"):
        return "private" if repository["private"] else "public"
    return str(repository.get("visibility") or "")


def registration_path(github: GitHub) -> str:
    """Return the path of the place where runners register, in the REST API."""
    path = urlsplit(github.url).path.strip("/")
    return {"organisation": f"/orgs/{path}", "repository": f"/repos/{path}", "enterprise": f"/{path}"}[github.scope]


def installation_reader(github: GitHub, key: str) -> GitHubReader:
    """Return a reader with what the App's installation may do, or with a token as it is. Raises Unavailable."""
    address = api_address(github)
    if github.app is None or "PRIVATE KEY" not in key:
        return GitHubReader(address, key.strip())
    app = github.app

    def token() -> str:
        reader = GitHubReader(address, app_token(app.id, key))
        return str(reader.ask("POST", f"/app/installations/{app.installation}/access_tokens").body["token"])

    return GitHubReader(address, token(), token)  # one lives for an hour, which a watch outlives


_CONNECTION = (urllib.error.URLError, OSError, http.client.HTTPException)
"""Errors of a connection; the last is an answer that ends early."""


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
    except (ValueError, AttributeError, OSError, http.client.HTTPException):
        message = ""
    text = f"{host} answers {error.code} to {request}{f': {message}' if message else ''}"
    if error.code in (429, 502, 503, 504) or (error.code == 403 and "rate limit" in message.lower()):
        wait = _wait(error.headers)
        return _Again(text, wait) if wait <= _LONGEST_WAIT else RateLimited(text, wait)
    if error.code == 404:
        return NotFound(text)
    if error.code == 401:
        return Unauthorised(text)
    if error.code in (301, 307, 308):
        return Moved(text, error.headers.get("Location") or "")
    if error.code == 403:
        return Forbidden(text, _RIGHTS)
    if error.code == 422:
        return NotApplicable(text)
    return Unavailable(text, _RIGHTS)


_RIGHTS = "what the App or the token may do on GitHub"


class Forbidden(Unavailable):
    """The credential may not read it."""


class NotApplicable(Unavailable):
    """GitHub has no such setting for a place of this kind."""


class Moved(Unavailable):
    """GitHub has it at another `location`."""

    def __init__(self, message: str, location: str) -> None:
        super().__init__(message, _RIGHTS)
        self.location = location


class RateLimited(Unavailable):
    """GitHub takes no request for so many `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, f"run it again in {seconds:.0f} s")
        self.seconds = seconds


class Unauthorised(Unavailable):
    """GitHub does not accept the credential."""
