"""Errors of a Kubernetes API, whose text a user reads."""

from __future__ import annotations

from paddock.errors import PaddockError


class KubernetesError(PaddockError):
    """A request of the Kubernetes API failed."""


class KubeconfigError(KubernetesError):
    """A kubeconfig that cannot be read."""

    exit_code = 2


class CredentialError(KubernetesError):
    """A kubeconfig's user has no token now: its file or program gives none."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}\n    fix: {fix}")


class ApiError(KubernetesError):
    """The API server refused a request. `reason` is Kubernetes' own, such as NotFound or Forbidden."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(message)


class Unreachable(KubernetesError):
    """The API server does not answer."""
