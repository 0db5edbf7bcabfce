"""The client of the Kubernetes API, over the standard library.

Own code, because a kept client costs more than it saves: lightkube has neither strict field validation nor discovery of
kinds; kr8s (57 MB with all it needs) and the official client (160 MB) take 0.4 s and more to import, where this one
takes 0.1 s, and every command that asks a cluster would wait for it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from paddock.kubernetes.connection import DIRECT, Route, connection
from paddock.kubernetes.credentials import Token
from paddock.kubernetes.errors import ApiError, KubernetesError, Unreachable

Object = dict[str, Any]
MANAGER = "paddock"
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_STRICT = {"fieldValidation": "Strict"}


class Api:
    """One API server over one connection, for one thread at a time."""

    def __init__(
        self,
        server: str,
        token: str | Token,
        trust: ssl.SSLContext,
        timeout: float = 30,
        route: Route = DIRECT,
        fix: str = "kubectl get nodes",
    ) -> None:
        self.server, self._token, self._trust, self._timeout, self._fix = server, token, trust, timeout, fix
        self._connection = connection(server, trust, timeout, route)
        self._resources: dict[str, dict[str, tuple[str, bool]]] = {}
        self.date = ""
        """`Date` of the last answer: the server's clock."""

    def get(self, version: str, kind: str, name: str, namespace: str = "") -> Object:
        return self.request("GET", self._path(version, kind, namespace, name))

    def find(self, version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """`get`, with None for what is not there."""
        try:
            return self.get(version, kind, name, namespace)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def list(self, version: str, kind: str, namespace: str = "", **query: str) -> list[Object]:
        """Return all objects of a kind, by default of all namespaces. `labelSelector`, `fieldSelector` narrow it."""
        answer = self.request("GET", self._path(version, kind, namespace, every=True), query=query)
        # Items of a list have neither version nor kind.
        return [{"apiVersion": version, "kind": kind, **item} for item in answer.get("items") or []]

    def pages(self, version: str, kind: str, limit: int, **query: str) -> Iterator[Sequence[Object]]:
        """Yield all objects of a kind in all namespaces, `limit` at a time: no answer grows with the cluster."""
        path, token = self._path(version, kind, "", every=True), ""
        while True:
            more = {"continue": token} if token else {}
            answer = self.request("GET", path, query={**query, "limit": str(limit), **more})
            yield [{"apiVersion": version, "kind": kind, **item} for item in answer.get("items") or []]
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def create(self, object_: Object, *, dry_run: bool = False) -> Object:
        """Create an object. A field that its kind does not have is refused, not dropped."""
        query = {**_STRICT, **({"dryRun": "All"} if dry_run else {})}
        return self.request("POST", self._path_of(object_, named=False), object_, query=query)

    def apply(self, object_: Object, *, dry_run: bool = False) -> Object:
        """Create or change an object by server-side apply, which also takes over fields of other managers."""
        query = {"fieldManager": MANAGER, "force": "true", **_STRICT, **({"dryRun": "All"} if dry_run else {})}
        return self.request("PATCH", self._path_of(object_), object_, query=query, content=_APPLY)

    def patch(self, object_: Object, change: Mapping[str, Any], subresource: str = "") -> Object:
        """Merge `change` into an object, or into a subresource of it such as `status`."""
        path = self._path_of(object_) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, change, content=_MERGE)

    def delete(self, object_: Object, **query: str) -> bool:
        """Delete an object; False where it was gone already. `gracePeriodSeconds`, `propagationPolicy` say how."""
        try:
            self.request("DELETE", self._path_of(object_), query=query)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def delete_as_read(self, object_: Object, preconditions: Mapping[str, Any]) -> None:
        """Delete an object that still has this uid and resourceVersion. Raises ApiError: 409 where it has not."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": dict(preconditions)}
        self.request("DELETE", self._path_of(object_), options)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        """Send one request to the server. Raises ApiError and Unreachable."""
        url = f"{path}?{urlencode(query)}" if query else path
        sent = None if body is None else json.dumps(body)
        status, text = self._send(method, url, sent, self._headers(content))
        if status == http.HTTPStatus.UNAUTHORIZED and not isinstance(self._token, str):
            status, text = self._send(method, url, sent, self._headers(content, renew=True))
        answer = _object(text)
        _check(method, path, status, answer)
        return answer

    def text(self, path: str, query: Mapping[str, str], most: int, seconds: float) -> bytes:
        """Return the first `most` bytes of an answer that is not JSON, such as a log, as far as they come in time.

        Raises ApiError and Unreachable.
        """
        headers = self._headers("application/json")
        deadline, body = time.monotonic() + seconds, b""
        try:
            self._connection.request("GET", f"{path}?{urlencode(query)}", None, headers)
            response = self._connection.getresponse()
            while len(body) < most and time.monotonic() < deadline:
                try:
                    piece = response.read1(min(1 << 16, most - len(body)))
                except TimeoutError:  # nothing more came in time
                    break
                if not piece:
                    break
                body += piece
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.server} does not answer: {error}\n    fix: {self._fix}") from None
        finally:
            self._connection.close()  # what was not read would be taken for the next answer
        _check("GET", path, response.status, _object(body))
        return body

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _headers(self, content: str, *, renew: bool = False) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token(renew=renew)
        own = {"Authorization": f"Bearer {token}"} if token else {}  # without one, a certificate says who asks
        return {**own, "Accept": "application/json", "Content-Type": content}

    def _send(self, method: str, url: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        for fresh in (self._connection.sock is None, True):
            try:
                self._connection.request(method, url, body, dict(headers))
                response = self._connection.getresponse()
                self.date = response.getheader("Date") or ""
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # The server may have closed a kept connection without notice.
                # Only requests that may safely arrive twice are sent again.
                if fresh or (method == "POST" and not isinstance(error, http.client.RemoteDisconnected)):
                    raise Unreachable(f"{self.server} does not answer: {error}\n    fix: {self._fix}") from None
            except ValueError:  # its text has the header that HTTP does not take, and so the token
                self._connection.close()
                raise KubernetesError(
                    f"a request to {self.server} has characters that HTTP does not take, perhaps in the token"
                ) from None
        raise AssertionError("unreachable")

    def _path_of(self, object_: Object, *, named: bool = True) -> str:
        meta = object_["metadata"]
        name = meta["name"] if named else ""
        return self._path(object_["apiVersion"], object_["kind"], meta.get("namespace", ""), name)

    def _path(self, version: str, kind: str, namespace: str, name: str = "", *, every: bool = False) -> str:
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        plural, namespaced = self._resource(base, version, kind)
        if namespaced and not (every and not namespace):
            base += f"/namespaces/{quote(namespace or 'default', safe='')}"
        return f"{base}/{plural}" + (f"/{quote(name, safe='')}" if name else "")

    def _resource(self, base: str, version: str, kind: str) -> tuple[str, bool]:
        if kind not in self._resources.get(base, {}):  # a CRD may have come since the server was asked last
            try:
                resources = self.request("GET", base)["resources"]
            except ApiError as error:
                if error.status != http.HTTPStatus.NOT_FOUND:
                    raise
                resources = []
            plain = (resource for resource in resources if "/" not in resource["name"])
            self._resources[base] = {resource["kind"]: (resource["name"], resource["namespaced"]) for resource in plain}
        try:
            return self._resources[base][kind]
        except KeyError:
            raise ApiError(
                http.HTTPStatus.NOT_FOUND,
                "NoSuchKind",
                f"{self.server} knows no {kind} in {version}: is its CRD there?",
            ) from None


def _check(method: str, path: str, status: int, answer: Object) -> None:
    if status >= http.HTTPStatus.BAD_REQUEST:
        reason = str(answer.get("reason") or http.client.responses.get(status, status))
        raise ApiError(status, reason, f"{method} {path}: {reason}: {answer.get('message', '')}")


def _object(text: bytes) -> Object:
    """Return an answer's JSON; anything else as its message."""
    try:
        return dict(json.loads(text)) if text else {}
    except (ValueError, TypeError):
        return {"message": text.decode("utf-8", "replace")[:500]}
