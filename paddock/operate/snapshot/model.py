"""Snapshot of a fleet as plain data. What could not be read is unknown, with the reason, and never empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from paddock.fleet import Fleet

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """All objects of one kind, or the reason why there are none."""

    items: tuple[Object, ...] = ()
    reason: str = ""
    """Why it is unknown; empty where it is known."""
    fix: str = ""
    permission: str = ""
    absent: bool = False
    """True where the source answered that it has no such kind: known, and empty."""
    at: datetime | None = None
    """Time of this machine at the end of the reading."""
    clock: datetime | None = None
    """Time of the source itself, where its answer said it."""

    @property
    def known(self) -> bool:
        return not self.reason

    def __iter__(self) -> Iterator[Object]:
        return iter(self.items)


NOT_READ = Reading(reason="not read")


@dataclass(frozen=True)
class Snapshot:
    """A fleet at one time."""

    fleet: Fleet
    at: datetime
    """Time of the cluster. Objects are dated by it, and this machine's clock may be wrong."""
    nodes: Reading = NOT_READ
    pods: Reading = NOT_READ
    events: Reading = NOT_READ
    killings: Reading = NOT_READ
    """Events by which kubelets said that they end a container; read only where asked for."""
    runner_sets: Reading = NOT_READ
    """AutoscalingRunnerSets."""
    listeners: Reading = NOT_READ
    runner_groups: Reading = NOT_READ
    """EphemeralRunnerSets."""
    runners: Reading = NOT_READ
    """EphemeralRunners."""
    daemonsets: Reading = NOT_READ
    deployments: Reading = NOT_READ
    quotas: Reading = NOT_READ
    """ResourceQuotas."""
    node_groups: Reading = NOT_READ
    """EKS's description of each of the fleet's GPU node groups."""
    scaling_groups: Reading = NOT_READ
    """Auto Scaling groups of these."""
    activities: Reading = NOT_READ
    """Scaling activities of these, the newest first."""
    logs: Reading = NOT_READ
    """Ends of logs of listeners and controllers in trouble, by the names of their pods, without secrets."""
    jobs: Reading = NOT_READ
    """Jobs of GitHub, as its REST API has them."""
    github_runners: Reading = NOT_READ
    job_log: Reading = NOT_READ
    """End of the log of the one job that was asked for: one item with its `text`."""
    admissions: Reading = NOT_READ
    """Whether each runner group of the fleet admits the one queued job that was asked for; read by `why`."""
    clocks: Mapping[str, datetime] = field(default_factory=dict)
    """Time of other sources by name: `aws`, `github`, and `machine`, on which this runs."""
    earlier: Snapshot | None = None
    """Reading of a few seconds before, where there was one."""
    by_object: dict[tuple[str, str, str], list[Object]] = field(default_factory=dict, init=False, compare=False)
    """Events of an object by kind, namespace and name, the oldest first."""

    def __post_init__(self) -> None:
        for event in sorted(self.events, key=lambda event: str(happened(event) or "")):
            about = event.get("involvedObject") or {}
            key = (str(about.get("kind")), str(about.get("namespace") or ""), str(about.get("name")))
            self.by_object.setdefault(key, []).append(event)

    def readings(self) -> dict[str, Reading]:
        """Return every part by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Reading)}

    def events_of(self, object_: Object) -> list[Object]:
        """Return the events of an object that is there now, not of an earlier one with its name; the oldest first."""
        kind, uids = str(object_.get("kind", "")), ("", None, object_["metadata"].get("uid"))
        events = self.events_named(object_)
        # The kubelet's events of a node have the node's name as uid.
        return [event for event in events if kind == "Node" or (event["involvedObject"].get("uid") in uids)]

    def events_named(self, object_: Object) -> list[Object]:
        """Return the events of an object and of earlier ones with its name, the oldest first."""
        meta = object_["metadata"]
        key = (str(object_.get("kind", "")), str(meta.get("namespace") or ""), str(meta["name"]))
        return self.by_object.get(key, [])

    def age(self, object_: Object) -> timedelta:
        """Return how long an object has been there, never negative: clocks differ."""
        return self.since(object_["metadata"].get("creationTimestamp"))

    def since(self, time: Any, source: str = "") -> timedelta:
        """Return the time since then by the clock of the source that wrote it, by default the cluster's.

        Zero where it is not known.
        """
        then = moment(time)
        return max(self.clocks.get(source, self.at) - then, timedelta()) if then else timedelta()


def changed(object_: Object) -> datetime | None:
    """Return when something else than an object's status was last written, at the earliest when it was made."""
    meta = object_["metadata"]
    writes = [entry for entry in meta.get("managedFields") or [] if entry.get("subresource") != "status"]
    times = (meta.get("creationTimestamp"), *(entry.get("time") for entry in writes))
    return max(filter(None, map(moment, times)), default=None)


def moment(time: Any) -> datetime | None:
    """Return a time of Kubernetes, GitHub or botocore; None for anything else."""
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        parsed = datetime.fromisoformat(str(time).replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def happened(event: Object) -> datetime | None:
    """Return when an event was last seen."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((found for found in map(moment, times) if found), None)


def failed(job: Object) -> bool:
    """Return whether a job of GitHub has ended otherwise than well or unneeded."""
    return job.get("conclusion") not in (None, "success", "skipped", "neutral")


def of_fleet(fleet: Fleet, item: Object) -> bool:
    """Return whether one of ARC's objects is in the fleet's namespaces: another team's may have the same names."""
    own = (item.get("spec") or {}).get("autoscalingRunnerSetNamespace") or item["metadata"].get("namespace")
    return own in (fleet.cluster.arc.runners, fleet.cluster.arc.privileged)


def name(object_: Object) -> str:
    """Return `namespace/name`, or the name of what has no namespace."""
    meta = object_["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
