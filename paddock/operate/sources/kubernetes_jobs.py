"""Test Jobs in a cluster: made, watched and taken away again."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

from paddock.errors import one_line
from paddock.kube.errors import ApiError, KubernetesError
from paddock.operate.sources.kubeconfig import Cluster
from paddock.operate.sources.unavailable import NotFound, Unavailable

Object = Mapping[str, Any]
_REQUEST_SECONDS = 15.0
_BATCH = "batch/v1"


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
        try:
            self._api.create(dict(job))
        except KubernetesError as error:
            raise _unavailable(error, "create jobs.batch") from None

    def job(self, name: str) -> Object:
        """Return a Job as it is now. Raises NotFound, Unavailable."""
        try:
            return self._api.get(_BATCH, "Job", name, self.namespace)
        except KubernetesError as error:
            raise _unavailable(error, "get jobs.batch") from None

    def pods(self) -> list[Object]:
        """Return the pods of the run. Raises Unavailable."""
        try:
            return list(self._api.list("v1", "Pod", self.namespace, labelSelector=self.label))
        except KubernetesError as error:
            raise _unavailable(error, "list pods") from None

    def events(self, pod: str) -> list[Object]:
        """Return the events of a pod. Raises Unavailable."""
        try:
            query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod}"}
            return list(self._api.list("v1", "Event", self.namespace, **query))
        except KubernetesError as error:
            raise _unavailable(error, "list events") from None

    def log(self, pod: str) -> str:
        """Return the end of a pod's log on one line; empty where there is none to read."""
        try:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
            answer = self._api.request("GET", path, query={"tailLines": "5", "limitBytes": "2000"})
        except (KubernetesError, ValueError, TypeError):
            return ""
        return one_line(str(answer.get("message", "")))

    def remove(self) -> None:
        """Delete all Jobs and pods of the run. Raises Unavailable."""
        try:
            for job in self._api.list(_BATCH, "Job", self.namespace, labelSelector=self.label):
                name = job["metadata"]["name"]
                path = f"/apis/{_BATCH}/namespaces/{self.namespace}/jobs/{name}"
                self._delete(path, {"propagationPolicy": "Background"})
            for pod in self._api.list("v1", "Pod", self.namespace, labelSelector=self.label):
                path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
                self._delete(path, {"gracePeriodSeconds": "5"})
        except KubernetesError as error:
            raise _unavailable(error, "delete jobs.batch") from None

    def left(self) -> list[str]:
        """Return what is still there of the run. Raises Unavailable."""
        try:
            kinds = ((_BATCH, "Job"), ("v1", "Pod"))
            every = [o for v, k in kinds for o in self._api.list(v, k, self.namespace, labelSelector=self.label)]
        except KubernetesError as error:
            raise _unavailable(error, "list jobs.batch") from None
        return [f"{item['kind']} {item['metadata']['name']}" for item in every]

    def _delete(self, path: str, query: Mapping[str, str]) -> None:
        try:
            self._api.request("DELETE", path, query=query)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise


def _unavailable(error: KubernetesError, right: str) -> Unavailable:
    text = one_line(str(error).splitlines()[0])
    if isinstance(error, ApiError) and error.status == http.HTTPStatus.NOT_FOUND:
        return NotFound(text)
    if isinstance(error, ApiError) and error.reason == "Forbidden" and "cannot" in text:
        return Unavailable(text, f"a role that allows: {right}", right)
    return Unavailable(text)
