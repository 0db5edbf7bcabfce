"""`serve.models`: the loaded models, and what the gateway counts of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import NoParameters
from paddock.console.report import Report
from paddock.serve.commands.connection import connected


@dataclass(frozen=True, kw_only=True)
class Models(Report):
    """The instances, as the scheduler lists them, each with its statistics."""

    SCHEMA = 2
    models: list[dict[str, Any]]

    def text(self) -> Iterator[str]:
        for row in self.models:
            yield instance_line(row)
            yield from (f"  note: {note}" for note in row["notes"])
            yield from _statistics(row["statistics"])
        if not self.models:
            yield "no models; serve.load loads one"


@command(checks_values_first=True)
def models(parameters: NoParameters) -> Models:
    """Show the instances. Raises ServeError."""
    with connected() as (ray, scheduler):
        from paddock.serve.deployment.cluster import gateway_statistics

        rows, counts = scheduler("models"), gateway_statistics(ray)
    return Models(models=[{**row, "statistics": counts.get(row["id"])} for row in rows])


def instance_line(row: Mapping[str, Any]) -> str:
    """Return an instance in one line."""
    shared = f" x {row['tensor_parallel']}" if (row["tensor_parallel"] or 1) > 1 else ""
    placed = [f"{row['class']}{shared}", row["dtype"] or "", *row["devices"]] if row["class"] else ["nowhere"]
    placed.append(f"by {row['engine']} {row['engine_version'] or ''}".rstrip())
    if row["url"]:
        placed = [f"external engine at {row['url']}, no device"]
    why = f": {row['reason']}" if row["reason"] else ""
    moved = f", placed again {row['moves']} times" if row["moves"] else ""
    return f"{row['id']:<20} {row['state']:<8} {', '.join(placed)}{moved}{why}"


def _statistics(statistics: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what the gateway counts of one instance; nothing where nobody has asked it yet."""
    if statistics is None:
        return
    occupancy = statistics["batch_occupancy"]
    yield (
        f"  {statistics['requests']} requests: {statistics['answered']} answered, {statistics['failed']} failed, "
        f"{statistics['cancelled']} cancelled, {statistics['running']} of {statistics['slots']} run, "
        f"{statistics['waiting']} wait"
    )
    yield (
        f"  {statistics['new_tokens']} tokens, batch {'unknown' if occupancy is None else f'{occupancy:.0%}'} full, "
        f"throttled {statistics['throttle_rate']:.0%}; p50 queue {_time(statistics['queue_seconds'])}, "
        f"first token {_time(statistics['first_token_seconds'])}, then {_time(statistics['token_seconds'])} a token"
    )
    for alert in statistics["alerts"]:
        yield f"  {alert['name']}: {alert['summary']}; {alert['fix']}"


def _time(percentiles: Mapping[str, float | None]) -> str:
    value = percentiles["p50"]
    return "unknown" if value is None else f"{value * 1000:.1f} ms"
