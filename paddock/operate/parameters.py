"""Parameters that commands about a fleet in its cluster have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.console.parameters import parameter
from paddock.console.project import OfStack
from paddock.console.report import Report
from paddock.duration import Seconds

LONGEST_JOB = 6 * 3600.0
"""GitHub's limit of a job whose workflow sets no timeout-minutes, in seconds."""


@dataclass(frozen=True, kw_only=True)
class OfCluster(OfStack):
    """Parameters of a command that asks the fleet's cluster."""

    kubeconfig: Path | None = parameter(None, "the kubeconfig file, by default kubectl's")
    context: str | None = parameter(None, "the context in it, by default the one of the fleet's cluster")

    @property
    def again(self) -> str:
        """Flags of a command line for the same fleet."""
        return f" --stack {self.stack}" + (f" --context {self.context}" if self.context else "")


@dataclass(frozen=True, kw_only=True)
class OfClusterAndGitHub(OfCluster):
    """Parameters of a command that asks GitHub, too."""

    github_key: Path | None = parameter(
        None, "the file with the App's private key, or a token; without it GitHub is not asked"
    )


@dataclass(frozen=True, kw_only=True)
class OfChange(OfCluster):
    """Parameters of a command that changes the fleet."""

    yes: bool = parameter(False, "do it without a question")


@dataclass(frozen=True, kw_only=True)
class OfPhases(OfChange):
    """Parameters of a command that changes the fleet phase by phase, once its runners have ended."""

    timeout: float = parameter(
        LONGEST_JOB, "for runners to end, by default GitHub's own limit of a job", unit=Seconds, gt=0
    )
    dry_run: bool = parameter(False, "show what would change, and change nothing")


@dataclass(frozen=True, kw_only=True)
class Declined(Report):
    """The person declined, so nothing was changed."""

    SCHEMA = "paddock.declined/1"
    message: str

    def notes(self) -> tuple[str, ...]:
        return (self.message,)


def declined(message: str = "Nothing was changed.") -> Declined:
    """Return the report of a command that the person declined."""
    return Declined(message=message)
