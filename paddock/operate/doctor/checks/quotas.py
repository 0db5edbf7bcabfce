"""Quotas: what the fleet needs at its maximum, against limit, use and increases that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil
from typing import Any

from paddock import catalog
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan.output.format import quantity
from paddock.plan.quota import EIP, VPC, QuotaNeed

AREA = "quotas"
_result = partial(Result, area=AREA)
_WINDOW = timedelta(hours=3)
"""Time in which AWS's metric of a quota's use must have a value; it is written every five minutes."""
_OPEN = ("PENDING", "CASE_OPENED")


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of a quota. `total` and `own` are None where they are not known, with the reason."""

    total: float | None
    own: float | None = None
    source: str = ""
    reason: str = ""

    @property
    def others(self) -> float:
        """Use by others, as far as it is known: what AWS counts without the fleet's own."""
        return max(0.0, (self.total or 0) - (self.own or 0))


def quota(need: QuotaNeed) -> Callable[[Context], Iterator[Result]]:
    """Return the check of one quota."""
    return partial(_quota, need)


def _quota(need: QuotaNeed, context: Context) -> Iterator[Result]:
    if need.code is None:
        message = f"{need.name}: {need.need:g} {need.unit} at most. {need.note}"
        fix = f"aws service-quotas list-service-quotas --region {need.region} --service-code {need.service}"
        yield _result(status="unknown", subject=need.subject, message=message, fix=fix)
        return
    now = datetime.now(UTC)
    limit = _limit(context, need)
    value = float(limit["Value"])
    usage = _usage(context, need, limit, now)
    amounts = (
        Amount(name="need", value=need.need, unit=need.unit, source="plan", as_of=context.today.isoformat()),
        Amount(name="limit", value=value, unit=need.unit, source=limit["source"], as_of=now.isoformat()),
        Amount(name="used", value=usage.total, unit=need.unit, source=usage.source, as_of=now.isoformat()),
        Amount(name="used by the fleet", value=usage.own, unit=need.unit, source="ec2, tag paddock:fleet",
               as_of=now.isoformat()),
    )  # fmt: skip
    subject = f"{need.name} ({need.code})"
    message = f"need {quantity(need.need, need.unit)}, limit {value:g}, {_used(usage)}"
    desired = ceil(need.need + usage.others)
    if value >= desired:
        yield _result(status="pass", subject=subject, message=message, amounts=amounts)
        return
    fails = need.need_without_fallback > value
    message += "" if need.need > value else ": not enough with the present use by others"
    if need.need > value and not fails:
        message += f": enough as long as there is spot capacity ({need.need_without_fallback:g})"
    fix = _request(need, desired) if limit.get("Adjustable", True) else "AWS does not raise this limit"
    try:
        if pending := _pending(context, need):
            requested = float(pending["DesiredValue"])
            message += f"; an increase to {requested:g} is {pending['Status'].lower().replace('_', ' ')} since "
            message += f"{pending['Created']:%Y-%m-%d}" if "Created" in pending else "an unknown day"
            if requested >= desired:
                fix = (
                    "wait for AWS: aws service-quotas get-requested-service-quota-change "
                    f"--region {need.region} --request-id {pending['Id']}"
                )
    except Unavailable as error:
        message += f"; whether an increase is pending is unknown: {error}"
    yield _result(status="fail" if fails else "warn", subject=subject, message=message, fix=fix, amounts=amounts)


def _request(need: QuotaNeed, desired: int) -> str:
    """Return the command that asks AWS for this much."""
    return replace(need, need=float(desired), default=0.0).request


def _limit(context: Context, need: QuotaNeed) -> dict[str, Any]:
    """Return the limit that holds for the account: the applied one, else AWS's default."""
    parameters: dict[str, Any] = {"ServiceCode": need.service, "QuotaCode": need.code}
    try:
        quota = context.aws.read("service-quotas", "get_service_quota", **parameters)["Quota"]
        source = "servicequotas:GetServiceQuota"
    except NotFound:  # nobody ever changed it
        quota = context.aws.read("service-quotas", "get_aws_default_service_quota", **parameters)["Quota"]
        source = "servicequotas:GetAWSDefaultServiceQuota"
    if "Value" not in quota:
        raise Unavailable(f"AWS gives no limit for {need.name} ({need.code})", "the console of Service Quotas shows it")
    return {**quota, "source": source}


def _usage(context: Context, need: QuotaNeed, limit: dict[str, Any], now: datetime) -> Usage:
    """Return the use of a quota; what cannot be read is reported, and does not count against the limit."""
    try:
        if need.code in _COUNTED:
            items = _COUNTED[need.code](context.aws)
            own = sum(_is_own(item, context.fleet.name) for item in items)
            return Usage(len(items), own, "ec2, counted")
        metric = limit.get("UsageMetric") or {}
        if not metric.get("MetricName"):
            return Usage(None, reason="AWS publishes no usage of it")
        total = _metric(context, metric, now)
        if total is None:
            return Usage(None, source="cloudwatch:GetMetricData", reason="no use was published in 3 hours")
        return Usage(total, _own_vcpus(context, need), "cloudwatch:GetMetricData")
    except Unavailable as error:
        lacking = f", for lack of {error.permission}" if error.permission else f": {error}"
        return Usage(None, reason=f"use unknown{lacking}")


_COUNTED: dict[str, Callable[[AwsReader], list[dict[str, Any]]]] = {
    EIP: lambda aws: list(aws.read("ec2", "describe_addresses")["Addresses"]),  # EC2 answers it on one page
    VPC: lambda aws: aws.pages("ec2", "describe_vpcs", "Vpcs"),
}
"""Quotas whose use is counted, because AWS publishes no metric of it."""


def _is_own(item: dict[str, Any], fleet: str) -> bool:
    return any(tag == {"Key": "paddock:fleet", "Value": fleet} for tag in item.get("Tags", ()))


def _metric(context: Context, metric: dict[str, Any], now: datetime) -> float | None:
    """Return the newest value of a metric of use, None where there is none. The quota itself names the metric."""
    dimensions = [{"Name": name, "Value": value} for name, value in metric.get("MetricDimensions", {}).items()]
    stat = {
        "Metric": {
            "Namespace": metric["MetricNamespace"],
            "MetricName": metric["MetricName"],
            "Dimensions": dimensions,
        },
        "Period": 300,
        "Stat": metric.get("MetricStatisticRecommendation", "Maximum"),
    }
    answer = context.aws.read(
        "cloudwatch",
        "get_metric_data",
        MetricDataQueries=[{"Id": "use", "MetricStat": stat}],
        StartTime=now - _WINDOW,
        EndTime=now,
        ScanBy="TimestampDescending",
    )
    values: list[float] = next(
        (result["Values"] for result in answer["MetricDataResults"] if result["Id"] == "use"), []
    )
    return float(values[0]) if values else None


def _own_vcpus(context: Context, need: QuotaNeed) -> float | None:
    """Return the vCPUs of the fleet's own instances that count in a quota, None where it counts something else."""
    capacity = catalog.quotas()[need.code or ""].capacity
    if capacity is None:
        return None
    own = 0.0
    for node in context.nodes():
        counted = catalog.quota_for(node.family, "spot" if node.spot else "on-demand")
        if counted and counted.code == need.code:
            own += node.vcpus or 0
    return own


def _pending(context: Context, need: QuotaNeed) -> dict[str, Any] | None:
    """Return the largest increase that AWS has not decided on."""
    requests = context.aws.pages(
        "service-quotas",
        "list_requested_service_quota_change_history_by_quota",
        "RequestedQuotas",
        ServiceCode=need.service,
        QuotaCode=need.code,
    )
    undecided = [request for request in requests if request.get("Status") in _OPEN]
    return max(undecided, key=lambda request: float(request["DesiredValue"]), default=None)


def _used(usage: Usage) -> str:
    if usage.total is None:
        return usage.reason
    own = f" ({usage.own:g} by this fleet)" if usage.own else ""
    return f"used {usage.total:g}{own}"
