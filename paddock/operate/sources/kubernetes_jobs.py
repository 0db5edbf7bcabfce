"""Test Jobs in a cluster: created, watched and removed."""

from __future__ import annotations

import http
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from paddock.errors import one_line
from paddock.kubernetes.errors import ApiError, KubernetesError, Unreachable
from paddock.kubernetes.kubeconfig import Cluster
from paddock.operate.sources.unavailable import NotFound, Unavailable

Object = Mapping[str, Any]
_REQUEST_SECONDS = 15.0
_BATCH = "batch/v1"
_ATTEMPTS, _WAIT_SECONDS = 5, 0.5
_BUSY = (429, 500, 502, 503, 504)
T = TypeVar("T")


class Jobs:
    """Jobs of one run, by a label that only they have. For one thread at a time."""

    def __init__(self, cluster: Cluster, namespace: str, label: str) -> None:
        """`label` is `key=value`, and is on every Job and pod of the run."""
        self.namespace, self.label = namespace, label
        self._api = cluster.api(_REQUEST_SECONDS)

    def close(self) -> None:
        self._api.close()

    def create(self, job: Object) -> None:
        """Create a Job. Raises Unavailable, with the reason of an admission that refuses it."""

        def run() -> None:
            try:
                self._api.create(dict(job))
            except ApiError as error:
                # A request that was sent again, after an answer that never came.
                if error.status != http.HTTPStatus.CONFLICT or error.reason != "AlreadyExists":
                    raise

        self._retried(run, "create jobs.batch")

    def job(self, name: str) -> Object:
        """Return a Job as it is now. Raises NotFound, Unavailable."""
        return self._retried(lambda: self._api.get(_BATCH, "Job", name, self.namespace), "get jobs.batch")

    def pods(self) -> list[Object]:
        """Return the pods of the run. Raises Unavailable."""
        return self._retried(
            lambda: list(self._api.list("v1", "Pod", self.namespace, labelSelector=self.label)), "list pods"
        )

    def events(self, name: str, kind: str = "Pod") -> list[Object]:
        """Return the events of a pod or Job. Raises Unavailable."""
        query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
        return self._retried(lambda: list(self._api.list("v1", "Event", self.namespace, **query)), "list events")

    def _retried(self, run: Callable[[], T], right: str) -> T:
        """Return the result of a request, sent again while the server is busy. Raises Unavailable."""
        for attempt in range(_ATTEMPTS):
            try:
                return run()
            except KubernetesError as error:
                busy = isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status in _BUSY)
                if not busy or attempt + 1 == _ATTEMPTS:
                    raise _unavailable(error, right) from None
                time.sleep(_WAIT_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    def log(self, pod: str) -> str:
        """Return the end of a pod's log on one line; empty where there is none to read."""
        try:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
            answer = self._api.request("GET", path, query={"tailLines": "5", "limitBytes": "2000"})
        except (KubernetesError, ValueError, TypeError):
            return ""
        # A log that is one object of JSON is taken for the server's answer.
        return one_line(str(answer["message"]) if set(answer) == {"message"} else json.dumps(answer) if answer else "")

    def remove(self) -> None:
        """Delete all Jobs and pods of the run. Raises Unavailable."""
        self._retried(self._remove, "delete jobs.batch")

    def _remove(self) -> None:
        for job in self._api.list(_BATCH, "Job", self.namespace, labelSelector=self.label):
            self._api.delete(job, propagationPolicy="Background")
        for pod in self._api.list("v1", "Pod", self.namespace, labelSelector=self.label):
            self._api.delete(pod, gracePeriodSeconds="5")

    def left(self) -> list[str]:
        """Return what is still there of the run. Raises Unavailable."""
        kinds = ((_BATCH, "Job"), ("v1", "Pod"))
        every = self._retried(
            lambda: [o for v, k in kinds for o in self._api.list(v, k, self.namespace, labelSelector=self.label)],
            "list jobs.batch",
        )
        return [f"{item['kind']} {item['metadata']['name']}" for item in every]


def _unavailable(error: KubernetesError, right: str) -> Unavailable:
    text = one_line(str(error).splitlines()[0])
    if isinstance(error, ApiError) and error.status == http.HTTPStatus.NOT_FOUND:
        return NotFound(text)
    if isinstance(error, ApiError) and error.reason == "Forbidden" and "cannot" in text:
        return Unavailable(text, f"a role that allows: {right}", right)
    return Unavailable(text)
