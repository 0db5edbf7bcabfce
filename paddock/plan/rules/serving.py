"""Ray in the cluster: who may command it, and where it can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.resource_types import RAY_SERVICE
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation

_PUBLISHED = ("LoadBalancer", "NodePort")


class RayClosed(Rule):
    id = "PAD040"
    severity: ClassVar[Severity] = "error"
    title = "Ray asks every process for its token, is published nowhere, and keeps its state behind TLS"
    why = "Ray runs any code it receives by design; anyone who reaches its ports without a token runs it on its GPUs."
    fix = (
        "authOptions: {mode: token, secretName: ...}; services of type ClusterIP; no ingress; a redisAddress rediss://"
    )

    def check(self, context: Context) -> Iterator[Violation]:
        for service in context.all(RAY_SERVICE):
            cluster = fields.get(service.inputs, "spec", "rayClusterConfig")
            yield from self._token(service, cluster)
            head = fields.get(cluster, "headGroupSpec")
            for kind, fix in (
                (fields.get(head, "serviceType"), "headGroupSpec.serviceType: ClusterIP"),
                (fields.get(head, "headService", "spec", "type"), "headService.spec.type: ClusterIP"),
                (
                    fields.get(service.inputs, "spec", "serveService", "spec", "type"),
                    "serveService.spec.type: ClusterIP",
                ),
            ):
                if kind in _PUBLISHED:
                    yield violation(service, f"a service of type {kind} leads out of the cluster", fix=fix)
            if fields.is_on(fields.get(head, "enableIngress")):
                yield violation(service, "an ingress leads to its dashboard", fix="headGroupSpec.enableIngress: false")
            address = fields.text(cluster, "gcsFaultToleranceOptions", "redisAddress")
            if address and not address.startswith("rediss://"):
                message = "the state of its head, with the code it runs, crosses the network in clear text"
                yield violation(service, message, fix="redisAddress: rediss://HOST:PORT")

    @staticmethod
    def _token(service: Resource, cluster: Any) -> Iterator[Violation]:
        mode, secret = (fields.get(cluster, "authOptions", key) for key in ("mode", "secretName"))
        if fields.is_unknown(mode):
            return
        if mode != "token":
            yield violation(service, "it asks nobody for a token", fix="authOptions.mode: token")
        elif not fields.is_set(secret):
            message = "KubeRay makes a token of its own for each cluster, which nobody has chosen and none can revoke"
            yield violation(service, message, "warning", fix="authOptions.secretName: a secret with auth_token")

    milder: ClassVar[bool] = True


RULES = (RayClosed(),)
