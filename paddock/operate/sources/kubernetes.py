"""A fleet's cluster: whole lists of objects and changes of what was read, or the reason why neither can be had."""

from __future__ import annotations

import http
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote

from paddock.errors import one_line
from paddock.kubernetes.errors import ApiError, CredentialError, KubernetesError, Unreachable
from paddock.kubernetes.kubeconfig import Cluster
from paddock.operate.sources.dates import answered_at
from paddock.operate.sources.unavailable import NotFound, Unavailable, split_error

Object = Mapping[str, Any]

PAGE = 500
PATIENCE = 20.0
"""Seconds for all pages of one kind: a part of a list is never taken for the whole."""
_REQUEST_SECONDS, _CHANGE_SECONDS = 10.0, 15.0
_ATTEMPTS = 4
LOG_BYTES, _LOG_SECONDS = 256 * 1024, 5.0
"""Most of a log that is read, and how long one request for it may take."""
_LOG_LINES = (400, 60, 1)
"""Lines from the end: fewer, where they are longer than that."""
_FORBIDDEN = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')


class KubernetesReader:
    """Reads one cluster. Each list has a connection of its own, so that threads do not share one."""

    def __init__(self, cluster: Cluster, patience: float = PATIENCE) -> None:
        self.cluster, self.patience = cluster, patience
        self.clock: datetime | None = None
        """Time of the server at its last answer."""

    def all(self, version: str, kind: str, **query: str) -> list[Object]:
        """Return every object of a kind in all namespaces. Raises Unavailable, and NotFound for a kind without CRD."""
        began = time.monotonic()
        return self._answered(kind, began, lambda: self._all(version, kind, began, query))

    def named(self, version: str, kind: str, names: Iterable[str]) -> list[Object]:
        """Return those objects without a namespace that are there, of a kind whose lists are long. Raises Unavailable.

        A cluster's CRDs have tens of megabytes together.
        """

        def read() -> list[Object]:
            with self.cluster.api(min(_REQUEST_SECONDS, self.patience)) as api:
                return [item for name in names if (item := api.find(version, kind, name))]

        return self._answered(kind, time.monotonic(), read)

    def _answered(self, kind: str, began: float, read: Callable[[], list[Object]]) -> list[Object]:
        """Return what is read, again where the server is busy. Raises Unavailable, and NotFound."""
        for attempt in range(_ATTEMPTS):
            try:
                return read()
            except ApiError as error:
                # An expired page token, or a server that is busy: the list is read again.
                again = (http.HTTPStatus.GONE, http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
                if error.status not in again or attempt + 1 == _ATTEMPTS or time.monotonic() - began > self.patience:
                    raise refusal(error, kind) from None
                time.sleep(0.2 * 2**attempt)
            except (Unreachable, OSError) as error:
                reason = one_line(str(error).splitlines()[0])
                raise Unavailable(reason, f"kubectl --context {self.cluster.context} get nodes") from None
            except CredentialError as error:
                raise Unavailable(*split_error(error)) from None
            except (KubernetesError, AttributeError, TypeError, KeyError) as error:
                reason = f"the server's answer is not a list of {kind}: {one_line(str(error))}"
                raise Unavailable(reason, f"kubectl --context {self.cluster.context} get nodes") from None
        raise AssertionError("unreachable")

    def log_end(self, namespace: str, pod: str, container: str, *, previous: bool, follow: bool = False) -> str:
        """Return the end of a container's log, of the one before where `previous`.

        With `follow`, what it writes until it ends, for at most 5 seconds, is part of it.
        Raises Unavailable, and NotFound where there is none.
        """
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        query = {"container": container, "limitBytes": str(LOG_BYTES)}
        query |= {key: "true" for key, value in (("previous", previous), ("follow", follow)) if value}
        try:
            with self.cluster.api(_LOG_SECONDS) as api:
                body = b""
                for lines in _LOG_LINES:
                    body = api.text(path, {**query, "tailLines": str(lines)}, LOG_BYTES, _LOG_SECONDS)
                    if len(body) < LOG_BYTES:  # else the server ended there, and what is looked for comes last
                        break
        except ApiError as error:
            if error.status in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.BAD_REQUEST):
                raise NotFound(one_line(str(error))) from None
            raise refusal(error, "logs", "get pods/log") from None
        except KubernetesError as error:
            raise Unavailable(one_line(str(error).splitlines()[0])) from None
        return body.decode("utf-8", "replace")

    def _all(self, version: str, kind: str, began: float, query: Mapping[str, str]) -> list[Object]:
        seconds = min(_REQUEST_SECONDS, self.patience)
        items: list[Object] = []
        with self.cluster.api(seconds) as api:
            for page in api.pages(version, kind, PAGE, **query):
                items += page
                self.clock = answered_at(api.date) or self.clock
                if time.monotonic() - began > self.patience:
                    raise Unavailable(
                        f"{kind}: more than {len(items)} objects, not read within {self.patience:.0f} s",
                        "run it again, nearer to the cluster",
                    )
        return items


class Changed(Unavailable):
    """Somebody else changed or removed the object since it was read."""


class Changes:
    """Changes one cluster, each object only in the version that was read. For one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api(_CHANGE_SECONDS)

    def close(self) -> None:
        self._api.close()

    def patch(self, item: Object, change: Mapping[str, Any]) -> None:
        """Merge a change into an object. Raises Changed, NotFound, Unavailable."""
        version = {"resourceVersion": item["metadata"].get("resourceVersion")}
        body = {**change, "metadata": {**(change.get("metadata") or {}), **version}}
        with _reasons(item, "patch"):
            self._api.patch(dict(item), body)

    def delete(self, item: Object) -> None:
        """Delete an object as it was read: not one that changed since. Raises Changed, NotFound, Unavailable."""
        conditions = {key: item["metadata"].get(key) for key in ("uid", "resourceVersion")}
        with _reasons(item, "delete"):
            self._api.delete_as_read(dict(item), conditions)


@contextmanager
def _reasons(item: Object, verb: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        kind = str(item["kind"])
        if error.status == http.HTTPStatus.CONFLICT:
            reason = f"{kind} {item['metadata']['name']} was changed at the same time"
            raise Changed(reason, "run it again") from None
        raise refusal(error, kind, verb) from None
    except KubernetesError as error:
        raise Unavailable(one_line(str(error).splitlines()[0]), "kubectl get nodes") from None


def refusal(error: ApiError, kind: str, verb: str = "list") -> Unavailable:
    """Return the reason why the server refused a request, with the right that is missing."""
    message = one_line(str(error))
    if error.status == http.HTTPStatus.NOT_FOUND:
        return NotFound(f"the cluster knows no {kind}")
    if error.status == http.HTTPStatus.UNAUTHORIZED:
        return Unavailable(
            f"{kind}: the cluster does not accept the credential", "log in again, then kubectl get nodes"
        )
    if error.status == http.HTTPStatus.FORBIDDEN:
        match = _FORBIDDEN.search(message)
        right = f"{match[1]} {match[2]}{f'.{match[3]}' if match[3] else ''}" if match else f"{verb} {kind}"
        return Unavailable(f"{kind}: may not {right}", f"a role that allows: {right}", right)
    return Unavailable(f"{kind}: {message}")
