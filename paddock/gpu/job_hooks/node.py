"""Marks the node that this pod is on for replacement, through the Kubernetes API and with the pod's own token."""

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

REPLACE, SINCE = "paddock.dev/replace", "paddock.dev/replace-since"
"""Annotations of a node: what is wrong with it, and since when."""
SECRETS = "var/run/paddock/kubernetes"
"""Where a runner's pod has its token and the certificate of the API."""
_LONGEST = 256
"""Of an annotation's text. The cluster's admission policy takes no more, and only printable ASCII."""


def mark(reason: str, *, environ: Mapping[str, str], root: Path = Path("/"), timeout_s: float = 2.0) -> str:
    """Annotates the node with `reason` and cordons it: it takes no more pods, and is taken away once it is empty.

    Returns a sentence of what was done, or of why not. Raises nothing, and returns within `timeout_s` seconds
    whatever the API does.
    """
    told: list[str] = []
    # A socket's timeout starts again with each byte that comes; only a thread that is left behind bounds them all.
    thread = threading.Thread(target=lambda: told.append(_marked(reason, environ, root, timeout_s)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    return told[0] if told else _not(f"the Kubernetes API did not answer within {timeout_s:g} s")


def _marked(reason: str, environ: Mapping[str, str], root: Path, timeout_s: float) -> str:
    for name in ("NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        if not environ.get(name):
            return _not(f"{name} is not set in this pod")
    try:
        return _Node.of_this_pod(environ, root, timeout_s).mark(reason)
    except FileNotFoundError as error:
        return _not(f"this pod has no token for it ({error.filename} is absent)")
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            return _not(f"the Kubernetes API refused: {_message(error)}")
    except urllib.error.URLError as error:
        return _not(f"the Kubernetes API cannot be reached: {error.reason}")
    except Exception as error:  # whatever it is, the job's verdict must still be told
        return _not(f"{type(error).__name__}: {error}")


class _Node:
    """The node's object, as far as a token of this pod may see and change it."""

    def __init__(self, name: str, url: str, token: str, trust: ssl.SSLContext, timeout_s: float) -> None:
        self.name, self._url, self._token, self._until = name, url, token, time.monotonic() + timeout_s
        # A proxy of the job's is not for the cluster's own API.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
        self._opener = urllib.request.build_opener(*handlers)

    @classmethod
    def of_this_pod(cls, environ: Mapping[str, str], root: Path, timeout_s: float) -> _Node:
        secrets = root / SECRETS
        name, host = environ["NODE_NAME"], environ["KUBERNETES_SERVICE_HOST"]
        token = (secrets / "token").read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cadata=(secrets / "ca.crt").read_text(encoding="ascii"))
        where = f"[{host}]" if ":" in host else host
        url = f"https://{where}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}/api/v1/nodes/{quote(name, safe='')}"
        return cls(name, url, token, trust, timeout_s)

    def mark(self, reason: str) -> str:
        now = self._patch({})  # changes nothing, and is answered with the node; the token may not read it
        before, cordoned = now["metadata"].get("annotations") or {}, now["spec"].get("unschedulable", False)
        if cordoned and before.get(REPLACE):
            return f"node {self.name} was marked for replacement already ({before[REPLACE]})"
        said = {REPLACE: _printable(reason), SINCE: datetime.now(UTC).isoformat(timespec="seconds")}
        self._patch({"metadata": {"annotations": said}, "spec": {"unschedulable": True}})
        return f"node {self.name} is marked for replacement, and takes no more jobs"

    def _patch(self, change: Mapping[str, Any]) -> dict[str, Any]:
        left = self._until - time.monotonic()
        if left <= 0:  # nobody waits for it any more, and that the node was not marked has been told
            raise TimeoutError("its time is up")
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
        with self._opener.open(request, timeout=left) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def _not(why: str) -> str:
    return f"the node was not marked for replacement: {why}"


def _printable(text: str) -> str:
    return re.sub(r"[^ -~]+", " ", text).strip()[:_LONGEST] or "unknown"


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except Exception:  # a balancer in between answers with anything
        return f"{error.code} {error.reason}"
