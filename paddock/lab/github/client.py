"""Client of the Actions service, which sends what ARC's controller and listener send."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jwt

from paddock.lab.errors import LabError

Object = dict[str, Any]
TIMEOUT_SECONDS = 10.0
POLL_TIMEOUT_SECONDS = 60.0
_SETS = "_apis/runtime/runnerscalesets"
_AGENTS = "_apis/distributedtask/pools/0/agents"
_EARLY_SECONDS = 60.0
"""A token is renewed this long before it expires."""


class ActionsError(LabError):
    """The service refused a request. `status` is 0 where it did not answer at all."""

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class App:
    """A GitHub App, as it is in a scale set's secret."""

    id: str
    installation: str
    key: str = field(repr=False)
    """PEM."""


@dataclass(frozen=True, slots=True)
class Token:
    """A personal access token."""

    value: str = field(repr=False)


def credential(secret: Mapping[str, str]) -> App | Token:
    """Read the credential from the keys of a Kubernetes secret that ARC's chart expects. Raises ActionsError."""
    if token := secret.get("github_token"):
        return Token(token)
    names = ("github_app_id", "github_app_installation_id", "github_app_private_key")
    if missing := [name for name in names if not secret.get(name)]:
        raise ActionsError(f"the secret with GitHub's credential has no {', '.join(missing)}")
    return App(*(secret[name] for name in names))


class Actions:
    """One organisation's service, for one thread. `config_url` is http://HOST/ORGANISATION, as in a scale set."""

    def __init__(self, config_url: str, login: App | Token, agent: str = "paddock-lab") -> None:
        address = urlsplit(config_url)
        self._config_url, self._login, self._agent = config_url, login, agent
        self._base, self._scope = f"{address.scheme}://{address.netloc}", address.path.strip("/").split("/")
        self._tenant, self._token, self._until = "", "", 0.0

    # Scale sets.

    def group(self, name: str) -> int:
        """Return the number of a runner group."""
        return int(self._listed("_apis/runtime/runnergroups/", groupName=name)[0]["id"])

    def find_set(self, name: str, group: int) -> Object | None:
        return next(iter(self._listed(_SETS, runnerGroupId=str(group), name=name)), None)

    def create_set(self, name: str, group: int, labels: Iterable[str]) -> Object:
        """Create a set; the service ignores later changes of its labels."""
        system = [{"name": label, "type": "System"} for label in dict.fromkeys((name, *labels))]
        body = {"name": name, "runnerGroupId": group, "labels": system, "RunnerSetting": {"disableUpdate": True}}
        return self._ask("POST", _SETS, body)

    def scale_set(self, number: int) -> Object:
        """Return a set with its statistics."""
        return self._ask("GET", f"{_SETS}/{number}")

    def delete_set(self, number: int) -> None:
        """Delete a set; nothing happens where it does not exist."""
        self._delete(f"{_SETS}/{number}")

    # Runners.

    def register(self, number: int, name: str) -> int:
        """Register a runner for one job of a set, and return its number."""
        body = {"name": name, "workFolder": "_work"}
        return int(self._ask("POST", f"{_SETS}/{number}/generatejitconfig", body)["runner"]["id"])

    def find_runner(self, name: str) -> int | None:
        return next((int(runner["id"]) for runner in self._listed(_AGENTS, agentName=name)), None)

    def remove_runner(self, number: int) -> bool:
        """Remove a runner; False where it runs a job, and stays."""
        try:
            self._delete(f"{_AGENTS}/{number}")
        except ActionsError as error:
            if error.status == http.HTTPStatus.BAD_REQUEST:
                return False
            raise
        return True

    # Messages.

    def open_session(self, number: int, owner: str) -> Object:
        return self._ask("POST", f"{_SETS}/{number}/sessions", {"ownerName": owner})

    def renew_session(self, number: int, session: Object) -> Object:
        """Return the session with a new token."""
        return self._ask("PATCH", f"{_SETS}/{number}/sessions/{session['sessionId']}")

    def close_session(self, number: int, session: Object) -> None:
        self._delete(f"{_SETS}/{number}/sessions/{session['sessionId']}")

    def poll(self, session: Object, last: int, room: int) -> Object | None:
        """Wait for the next message; None if there was none. `room`: how many jobs the set can have at once."""
        url = session["messageQueueUrl"] + (f"?lastMessageId={last}" if last else "")
        headers = {"X-ScaleSetMaxCapacity": str(room)}
        status, answer = self._send(
            "GET", url, f"Bearer {session['messageQueueAccessToken']}", None, headers, POLL_TIMEOUT_SECONDS
        )
        return None if status == http.HTTPStatus.ACCEPTED else answer

    def acknowledge(self, session: Object, message: int) -> None:
        self._send("DELETE", f"{session['messageQueueUrl']}/{message}", f"Bearer {session['messageQueueAccessToken']}")

    def acquire(self, number: int, session: Object, jobs: list[int]) -> list[int]:
        """Request these jobs, and return those that the set acquired."""
        url, token = f"{self._service()}{_SETS}/{number}/acquirejobs", f"Bearer {session['messageQueueAccessToken']}"
        _, answer = self._send("POST", url, token, jobs)
        return [int(job) for job in (answer or {}).get("value", [])]

    # Logging in.

    def _service(self) -> str:
        if time.time() + _EARLY_SECONDS >= self._until:
            path = "repos" if len(self._scope) == 2 else "orgs"
            path = "" if self._scope[0] == "enterprises" else f"{path}/"
            registration = f"{self._base}/api/v3/{path}{'/'.join(self._scope)}/actions/runners/registration-token"
            _, answer = self._send("POST", registration, f"Bearer {self._access()}")
            body = {"url": self._config_url, "runner_event": "register"}
            url = f"{self._base}/api/v3/actions/runner-registration"
            _, tenant = self._send("POST", url, f"RemoteAuth {(answer or {})['token']}", body)
            self._tenant, self._token = (tenant or {})["url"], (tenant or {})["token"]
            self._until = float(jwt.decode(self._token, options={"verify_signature": False})["exp"])
        return f"{self._tenant.rstrip('/')}/"

    def _access(self) -> str:
        if isinstance(self._login, Token):
            return self._login.value
        url = f"{self._base}/api/v3/app/installations/{self._login.installation}/access_tokens"
        _, answer = self._send("POST", url, f"Bearer {app_token(self._login)}")
        return str((answer or {})["token"])

    def _ask(self, method: str, path: str, body: Object | None = None, **query: str) -> Object:
        url = f"{self._service()}{path}?{urlencode({**query, 'api-version': '6.0-preview'}, quote_via=quote)}"
        try:
            return self._send(method, url, f"Bearer {self._token}", body)[1] or {}
        except ActionsError as error:
            if error.status == http.HTTPStatus.UNAUTHORIZED:
                self._until = 0.0
            raise

    def _listed(self, path: str, **query: str) -> list[Object]:
        return list(self._ask("GET", path, None, **query)["value"])

    def _delete(self, path: str) -> None:
        try:
            self._ask("DELETE", path)
        except ActionsError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _send(
        self,
        method: str,
        url: str,
        authorization: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> tuple[int, Object | None]:
        defaults = {"Authorization": authorization, "User-Agent": self._agent}
        try:
            response, answer = send(method, url, body, {**defaults, **(headers or {})}, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ActionsError(f"{method} {urlsplit(url).path}: {self._base} does not answer: {error}") from None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            wait, why = response.headers.get("Retry-After", ""), (answer or {}).get("message", response.reason)
            message = f"{method} {urlsplit(url).path}: {response.status} {why}"
            raise ActionsError(message, response.status, float(wait) if wait.isdecimal() else None)
        return response.status, answer


def app_token(app: App) -> str:
    """Return the nine-minute token with which an App requests an installation's. Raises ActionsError."""
    issued_at = int(time.time()) - 60  # clocks differ
    try:
        return jwt.encode({"iat": issued_at, "exp": issued_at + 540, "iss": app.id}, app.key, "RS256")
    except (jwt.PyJWTError, TypeError, ValueError):
        raise ActionsError("the private key of the GitHub App is not an RSA key in PEM form") from None


def send(
    method: str, url: str, body: object, headers: Mapping[str, str], timeout: float
) -> tuple[http.client.HTTPResponse, Any]:
    """Send JSON and return the response with its JSON. Raises OSError, HTTPException and ValueError."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    path = f"{address.path}?{address.query}" if address.query else address.path
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        raw = response.read()
        return response, json.loads(raw) if raw else None
    finally:
        connection.close()
