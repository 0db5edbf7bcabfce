"""Changes of objects that are in a cluster: each only of the version that was read."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

from paddock.errors import one_line
from paddock.kube.errors import ApiError, KubernetesError
from paddock.operate.sources.kubeconfig import Cluster
from paddock.operate.sources.kubernetes import refusal
from paddock.operate.sources.unavailable import Unavailable

Object = Mapping[str, Any]
_REQUEST_SECONDS = 15.0


class Changed(Unavailable):
    """Somebody else changed or removed the object since it was read."""


class Changes:
    """Changes one cluster. For one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api(_REQUEST_SECONDS)

    def close(self) -> None:
        self._api.close()

    def patch(self, item: Object, change: Mapping[str, Any]) -> None:
        """Merge a change into an object. Raises Changed, NotFound, Unavailable."""
        version = {"resourceVersion": item["metadata"].get("resourceVersion")}
        body = {**change, "metadata": {**(change.get("metadata") or {}), **version}}
        try:
            self._api.patch(dict(item), body)
        except KubernetesError as error:
            raise _reason(error, item, "patch") from None

    def delete(self, item: Object) -> None:
        """Delete an object as it was read: not one that changed since. Raises Changed, NotFound, Unavailable."""
        meta = item["metadata"]
        conditions = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
        try:
            self._api.delete_as_read(dict(item), conditions)
        except KubernetesError as error:
            raise _reason(error, item, "delete") from None


def _reason(error: KubernetesError, item: Object, verb: str) -> Unavailable:
    kind = str(item["kind"])
    if isinstance(error, ApiError):
        if error.status == http.HTTPStatus.CONFLICT:
            return Changed(f"{kind} {item['metadata']['name']} was changed at the same time", "run it again")
        return refusal(error, kind, verb)
    return Unavailable(one_line(str(error).splitlines()[0]), "kubectl get nodes")
