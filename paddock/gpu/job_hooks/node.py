"""Mark for the replacement of this pod's node, set through the Kubernetes API with the pod's own token.

The client is this small because it runs in a job's pod: one request to one object, within seconds.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paddock.labels import REPLACE, REPLACE_SINCE

"""Annotations of a node: the fault, and the time of its detection."""
SECRETS = "var/run/paddock/kubernetes"
"""Folder of a runner's pod with its token and the certificate of the API."""
_MAX_LENGTH = 256
"""Length of an annotation's text. The cluster's admission policy allows no more, and only printable ASCII."""


def mark(reason: str, *, environ: Mapping[str, str], root: Path = Path("/"), timeout_s: float = 2.0) -> str:
    """Annotate the node with `reason` and cordon it: it gets no more pods, and is removed once it is empty.

    Return a sentence with the result. Raises nothing, and returns within `timeout_s` seconds whatever the API does.
    """
    answers: list[str] = []
    limit = _Limit(time.monotonic() + timeout_s)
    # A socket's timeout restarts with each byte; only a thread that may be left behind limits the whole request.
    thread = threading.Thread(target=lambda: answers.append(_mark(reason, environ, root, limit)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    limit.end()
    return answers[0] if answers else _failed(limit, f"the Kubernetes API did not answer within {timeout_s:g} s")


class _Limit:
    """Time limit of a mark: after `end` no request is sent, so that what was reported stays true.

    `marking` tells whether the request that changes the node was sent.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._ended = self.marking = False

    def remaining(self, *, marks: bool) -> float:
        """Return the seconds that a request has, which changes the node if it `marks`. Raises TimeoutError."""
        with self._lock:
            remaining = self._deadline - time.monotonic()
            if self._ended or remaining <= 0:
                raise TimeoutError("the time limit has passed")
            self.marking = self.marking or marks
            return remaining

    def end(self) -> None:
        with self._lock:
            self._ended = True


def _mark(reason: str, environ: Mapping[str, str], root: Path, limit: _Limit) -> str:
    for name in ("NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        if not environ.get(name):
            return _not_marked(f"{name} is not set in this pod")
    try:
        return _Node.of_this_pod(environ, root, limit).mark(reason)
    except FileNotFoundError as error:
        return _not_marked(f"this pod has no token for it ({error.filename} is absent)")
    except urllib.error.HTTPError as error:
        with error:  # closes the connection
            return _not_marked(f"the Kubernetes API refused: {_message(error)}")
    except urllib.error.URLError as error:
        return _failed(limit, f"the Kubernetes API cannot be reached: {error.reason}")
    except Exception as error:  # whatever it is, the job must still get its verdict
        return _failed(limit, f"{type(error).__name__}: {error}")


class _Node:
    """The node's object, as far as the token of this pod may read and change it."""

    def __init__(self, name: str, url: str, token: str, trust: ssl.SSLContext, limit: _Limit) -> None:
        self.name, self._url, self._token, self._limit = name, url, token, limit
        # The job's proxy must not be used for the cluster's API.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
        self._opener = urllib.request.build_opener(*handlers)

    @classmethod
    def of_this_pod(cls, environ: Mapping[str, str], root: Path, limit: _Limit) -> _Node:
        secrets = root / SECRETS
        name, host = environ["NODE_NAME"], environ["KUBERNETES_SERVICE_HOST"]
        token = (secrets / "token").read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cadata=(secrets / "ca.crt").read_text(encoding="ascii"))
        where = f"[{host}]" if ":" in host else host
        url = f"https://{where}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}/api/v1/nodes/{quote(name, safe='')}"
        return cls(name, url, token, trust, limit)

    def mark(self, reason: str) -> str:
        node = self._patch({})  # changes nothing and returns the node, which the token may not read
        before, cordoned = node["metadata"].get("annotations") or {}, node["spec"].get("unschedulable", False)
        if cordoned and before.get(REPLACE):
            return f"node {self.name} was marked for replacement already ({before[REPLACE]})"
        annotations = {REPLACE: _printable(reason), REPLACE_SINCE: datetime.now(UTC).isoformat(timespec="seconds")}
        self._patch({"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}})
        return f"node {self.name} is marked for replacement, and takes no more jobs"

    def _patch(self, change: Mapping[str, Any]) -> dict[str, Any]:
        remaining = self._limit.remaining(marks=bool(change))
        request = urllib.request.Request(  # noqa: S310 - always https
            self._url,
            data=json.dumps(change).encode(),
            method="PATCH",
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/merge-patch+json",
                "Accept": "application/json",
            },
        )
        with self._opener.open(request, timeout=remaining) as answer:
            node: dict[str, Any] = json.load(answer)
        return node


def _failed(limit: _Limit, why: str) -> str:
    return f"whether the node was marked for replacement is not known: {why}" if limit.marking else _not_marked(why)


def _not_marked(why: str) -> str:
    return f"the node was not marked for replacement: {why}"


def _printable(text: str) -> str:
    return re.sub(r"[^ -~]+", " ", text).strip()[:_MAX_LENGTH] or "unknown"


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except Exception:  # a load balancer may answer with anything
        return f"{error.code} {error.reason}"
