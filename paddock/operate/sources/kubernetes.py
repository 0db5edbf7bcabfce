"""The Kubernetes API, read only, by several threads at a time: whole lists, or the reason why there is none."""

from __future__ import annotations

import http
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from paddock.errors import one_line
from paddock.kube.errors import ApiError, KubernetesError, Unreachable
from paddock.operate.sources.kubeconfig import Cluster
from paddock.operate.sources.unavailable import NotFound, Unavailable

Object = Mapping[str, Any]

PAGE = 500
PATIENCE = 20.0
"""Seconds for all pages of one kind: a part of a list is never taken for the whole."""
_REQUEST_SECONDS = 10.0
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

    def all(self, version: str, kind: str, **query: str) -> list[Object]:
        """Return every object of a kind in all namespaces. Raises Unavailable, and NotFound for a kind without CRD."""
        began = time.monotonic()
        for attempt in range(_ATTEMPTS):
            try:
                return self._all(version, kind, began, query)
            except ApiError as error:
                # An expired page token, or a server that is busy: the list is read anew.
                again = (http.HTTPStatus.GONE, http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
                if error.status not in again or attempt + 1 == _ATTEMPTS or time.monotonic() - began > self.patience:
                    raise refusal(error, kind) from None
                time.sleep(0.2 * 2**attempt)
            except (Unreachable, OSError) as error:
                reason = one_line(str(error).splitlines()[0])
                raise Unavailable(reason, f"kubectl --context {self.cluster.context} get nodes") from None
            except (KubernetesError, AttributeError, TypeError, KeyError) as error:
                reason = f"the server's list of {kind} is none: {one_line(str(error))}"
                raise Unavailable(reason, f"kubectl --context {self.cluster.context} get nodes") from None
        raise AssertionError("unreachable")

    def log_end(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """Return the end of a container's log, of the one before where `previous`.

        Raises Unavailable, and NotFound where there is none.
        """
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        query = {"container": container, "limitBytes": str(LOG_BYTES), **({"previous": "true"} if previous else {})}
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
                if time.monotonic() - began > self.patience:
                    raise Unavailable(
                        f"{kind}: more than {len(items)} objects, not read within {self.patience:.0f} s",
                        "run it again, nearer to the cluster",
                    )
        return items


def refusal(error: ApiError, kind: str, verb: str = "list") -> Unavailable:
    """Return the reason why the server refused a request, with the right that is missing."""
    message = one_line(str(error))
    if error.status == http.HTTPStatus.NOT_FOUND:
        return NotFound(f"the cluster knows no {kind}")
    if error.status == http.HTTPStatus.UNAUTHORIZED:
        return Unavailable(f"{kind}: the cluster does not accept the credential", "log in anew, then kubectl get nodes")
    if error.status == http.HTTPStatus.FORBIDDEN:
        match = _FORBIDDEN.search(message)
        right = f"{match[1]} {match[2]}{f'.{match[3]}' if match[3] else ''}" if match else f"{verb} {kind}"
        return Unavailable(f"{kind}: may not {right}", f"a role that allows: {right}", right)
    return Unavailable(f"{kind}: {message}")
