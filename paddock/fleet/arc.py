"""Places of Actions Runner Controller and of a fleet's runners: namespaces, releases, service accounts."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.runner import Runner

NODE_MARK = "paddock-node-mark"
"""Name of what lets jobs mark their node, which the whole cluster shares; `cluster.arc.suffix` goes on after it."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller of ARC that serves scale sets of a fleet."""

    namespace: str
    """Its own, and that of its listeners."""
    account: str
    """Its service account."""
    release: str = ""
    """Helm's name of it; empty for another team's."""
    watches: str = ""
    """The one namespace of scale sets that it sees; empty for all of the cluster, or not known."""

    @property
    def log(self) -> str:
        """Command that prints the end of its log."""
        return f"kubectl -n {self.namespace} logs deployment/{self.account} --tail 100"


def namespace(fleet: Fleet, runner: Runner) -> str:
    """Return the namespace of a runner's pods."""
    return fleet.cluster.arc.privileged if runner.privileged else fleet.cluster.arc.runners


def namespaces(fleet: Fleet) -> tuple[str, ...]:
    """Return the namespaces of runner pods that the fleet has."""
    return tuple(sorted({*_used(fleet), fleet.cluster.arc.runners}))


def controllers(fleet: Fleet) -> dict[str, Controller]:
    """Return the controller of each namespace that has runner pods.

    ARC's chart restricts a controller to one namespace, and two in one namespace would take each other's listeners.
    """
    names = fleet.cluster.arc
    served = sorted(_used(fleet)) or [names.runners]
    if others := fleet.controller_of_others:
        return dict.fromkeys(served, Controller(*others))
    if fleet.controller == "everywhere":
        return dict.fromkeys(served, _controller(names.systems, names.suffix))
    return {
        place: _controller(f"{names.systems}-privileged", f"{names.suffix or ''}-privileged".lstrip("-"), place)
        if place == names.privileged
        else _controller(names.systems, names.suffix, place)
        for place in served
    }


def controller(fleet: Fleet, runner: Runner) -> Controller:
    """Return the controller that serves a runner's scale set."""
    return controllers(fleet)[namespace(fleet, runner)]


def systems(fleet: Fleet) -> tuple[str, ...]:
    """Return the namespaces of controllers and listeners."""
    return tuple(dict.fromkeys(controller.namespace for controller in controllers(fleet).values()))


def _used(fleet: Fleet) -> set[str]:
    return {namespace(fleet, runner) for runner in fleet.runners.values()}


def _controller(place: str, suffix: str | None, watches: str = "") -> Controller:
    release = f"arc-{suffix}" if suffix else "arc"
    return Controller(place, f"{release}-gha-rs-controller", release, watches)
