"""Things that a cluster has once, and others may have installed: Actions Runner Controller and CRDs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from paddock.fleet.model.base import Matching, Model

OfCrds = Literal["share", "keep", "replace"]
"""What becomes of the CRDs of a chart."""
Crd = OfCrds | None
Chart = Literal["arc", "nfd", "ray"]
"""Whose CRDs."""


class Crds(Model):
    """CRDs that charts bring. They are the whole cluster's, no matter who installed them.

    `share` makes those that are not there and agrees on those that are the same; where one differs, `pulumi up` stops
    and changes nothing of it. `keep` leaves them alone: they must be there. `replace` takes them over. By default
    `replace` in a cluster that is made here, and `share` in any other.
    """

    arc: Crd = None
    """Those of actions.github.com."""
    nfd: Crd = None
    """Those of nfd.k8s-sigs.io, Node Feature Discovery's, which comes with the device plugin."""
    ray: Crd = None
    """Those of ray.io, KubeRay's."""


class Arc(Model):
    """Actions Runner Controller, in a cluster where another team may have its own."""

    suffix: (
        Annotated[
            str,
            Matching(
                r"^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$",
                "at most 20 lower-case letters, digits and dashes, with a letter or a digit at both ends",
            ),
        ]
        | None
    ) = None
    """End of the names of its namespaces, its releases and what the whole cluster shares, where another team has those
    of GitHub's documents: with `ml` arc-systems-ml, arc-runners-ml, arc-runners-ml-privileged, paddock-node-mark-ml."""
    controller: (
        Annotated[
            str,
            Matching(
                r"^(own|everywhere|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                "own, everywhere, or NAMESPACE/ACCOUNT of a controller that is there, such as "
                "arc-systems/arc-gha-rs-controller",
                fix="write own or everywhere in lower case, or leave it out for the default",
            ),
        ]
        | None
    ) = None
    """`own` installs a controller for each namespace of this fleet's runners, which sees no other namespace;
    `everywhere` one for the whole cluster, which deletes every scale set of another minor version than its own;
    NAMESPACE/ACCOUNT installs none: the controller with that service account serves the scale sets. By default
    `everywhere` in a cluster that is made here, and `own` in any other."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_text(cls, data: Any) -> Any:
        if isinstance(data, str):
            fix = "write arc: {controller: own}, or {suffix: ml} for names of its own"
            text = {"expected": "settings by name: suffix, controller", "fix": fix}
            raise PydanticCustomError("text", "text", text)
        return data

    @property
    def systems(self) -> str:
        """Namespace of the controller and of listeners."""
        return self.named("arc-systems")

    @property
    def runners(self) -> str:
        """Namespace of runner pods."""
        return self.named("arc-runners")

    @property
    def privileged(self) -> str:
        """Namespace of runner pods with Docker-in-Docker, which is privileged and so kept from all others."""
        return f"{self.runners}-privileged"

    def named(self, name: str) -> str:
        """Return the name that this fleet has of what the whole cluster shares."""
        return f"{name}-{self.suffix}" if self.suffix else name
