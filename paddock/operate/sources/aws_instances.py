"""Instances of a fleet's pools that run or have ended, with what EC2 and Auto Scaling say of their end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from paddock.fleet import Fleet
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import Unavailable

_NAME = "Name"
_CHUNK = 200
_MOST_PAGES = 20
GONE: Final = "gone"
"""State of an instance that EC2 does not list any more: about an hour after its end."""
_ENDED = ("shutting-down", "terminated", "stopping", "stopped", GONE)
_TERMINATES = re.compile(r"Terminating EC2 instance: (i-[0-9a-f]+)")
_STATE_REASONS = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
"""Codes of EC2's StateReason (docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html, read 2026-11-25)."""
_REQUEST_CODES = re.compile(
    r"marked-for-(termination|stop)"
    r"|instance-(terminated|stopped)-(by-price|no-capacity|capacity-oversubscribed|launch-group-constraint)"
    r"|instance-terminated-by-experiment"
)
"""Codes of a Spot request whose instance AWS takes back
(docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-request-status.html, read 2026-11-25). `-by-user` is not one: the
fleet's own autoscaler ends instances like that."""
_CAUSES = re.compile(r"rebalance recommendation|spot (instance )?interruption", re.IGNORECASE)
"""Words of an Auto Scaling activity's cause where a group replaces an instance that EC2 is about to take back: those of
Capacity Rebalancing, which managed node groups of Spot capacity have. The whole sentence is in no source that we read.
"""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. Texts are AWS' own, empty where it says nothing."""

    id: str
    pool: str
    state: str = GONE
    dns: str = ""
    """Private DNS name, which is the node's name. EC2 forgets it when the instance has ended."""
    launched: datetime | None = None
    reason: str = ""
    """Code of the StateReason."""
    request: str = ""
    """Code of its Spot request, and since when."""
    request_at: datetime | None = None
    cause: str = ""
    """Cause of the Auto Scaling activity that ended it, and since when."""
    cause_at: datetime | None = None

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def taken_back(self) -> str:
        """Return why AWS took it back, empty where nothing says so."""
        if self.reason in _STATE_REASONS:
            return self.reason
        if _REQUEST_CODES.fullmatch(self.request):
            return f"Spot request {self.request}"
        return "Auto Scaling replaced it before EC2 takes it back" if self.replaced_at else ""

    @property
    def replaced_at(self) -> datetime | None:
        """Return when Auto Scaling began to replace it because EC2 is about to take it back."""
        return self.cause_at if _CAUSES.search(self.cause) else None

    @property
    def why(self) -> str:
        """Return what AWS says of its state."""
        return self.taken_back or self.reason or self.request or self.state


@dataclass(frozen=True, slots=True)
class Instances:
    """All instances of the pools, or why they are not all known."""

    items: tuple[Instance, ...] = ()
    error: Unavailable | None = None

    def get(self, id_: str) -> Instance | None:
        return next((item for item in self.items if item.id == id_), None)


@dataclass(slots=True)
class _Instances:
    by_id: dict[str, Instance] = field(default_factory=dict)

    def change(self, id_: str, pool: str = "", **values: Any) -> None:
        self.by_id[id_] = replace(self.by_id.get(id_) or Instance(id_, pool), **values)


def read(aws: AwsReader, fleet: Fleet, groups: Mapping[str, str], since: datetime) -> Instances:
    """Return the instances with activities since then. `groups`: the pool of each Auto Scaling group.

    An error of one operation leaves what the others said.
    """
    instances, error = _Instances(), None
    for part in (_described, _activities, _requests):
        try:
            part(aws, fleet, groups, since, instances)
        except Unavailable as refused:
            error = error or refused
    return Instances(tuple(instances.by_id.values()), error)


def _described(aws: AwsReader, fleet: Fleet, groups: Mapping[str, str], since: datetime, instances: _Instances) -> None:
    pools = {f"{fleet.name}-{name}": name for name in fleet.pools}  # the name that the launch template gives
    filters = [{"Name": f"tag:{_NAME}", "Values": sorted(pools)}]
    for reservation in aws.pages("ec2", "describe_instances", "Reservations", Filters=filters):
        for instance in reservation.get("Instances") or ():
            named = next((tag["Value"] for tag in instance.get("Tags") or () if tag["Key"] == _NAME), "")
            instances.change(
                str(instance["InstanceId"]),
                pools.get(named, ""),
                state=str((instance.get("State") or {}).get("Name") or ""),
                dns=str(instance.get("PrivateDnsName") or ""),
                launched=instance.get("LaunchTime"),
                reason=str((instance.get("StateReason") or {}).get("Code") or ""),
            )


def _activities(
    aws: AwsReader, fleet: Fleet, groups: Mapping[str, str], since: datetime, instances: _Instances
) -> None:
    """Read what each group ended: the list has instances that EC2 has forgotten."""
    for group, pool in groups.items():
        for activity in _newest(aws, group, since):
            match = _TERMINATES.search(str(activity.get("Description") or ""))
            if match:
                cause, at = str(activity.get("Cause") or ""), activity.get("StartTime")
                instances.change(match[1], pool, cause=cause, cause_at=at)


def _newest(aws: AwsReader, group: str, since: datetime) -> Iterable[Mapping[str, Any]]:
    token: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        answer = aws.read("autoscaling", "describe_scaling_activities", AutoScalingGroupName=group, **token)
        page = answer.get("Activities") or []
        fresh = [event for event in page if event["StartTime"] >= since]
        yield from fresh
        if len(fresh) < len(page) or not answer.get("NextToken"):
            return
        token = {"NextToken": str(answer["NextToken"])}
    raise Unavailable(f"Auto Scaling group {group} has more activities since {since:%H:%M} UTC than are read")


def _requests(aws: AwsReader, fleet: Fleet, groups: Mapping[str, str], since: datetime, instances: _Instances) -> None:
    ids = sorted(instances.by_id)
    for start in range(0, len(ids), _CHUNK):
        filters = [{"Name": "instance-id", "Values": ids[start : start + _CHUNK]}]
        for request in aws.pages("ec2", "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters):
            status = request.get("Status") or {}
            code, at = str(status.get("Code") or ""), status.get("UpdateTime")
            instances.change(str(request["InstanceId"]), request=code, request_at=at)
