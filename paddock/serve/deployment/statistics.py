"""Statistics of replicas that serve, read through Ray Serve, and the lines that show them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paddock.serve.deployment.instances.applications import REPLICA
from paddock.serve.deployment.instances.instance import application_name

_ANSWER_S = 5.0


def replica_statistics(ids: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """Return what the replica of each instance counts; None where it does not answer in time."""
    from ray.serve.handle import DeploymentHandle

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    pending: dict[str, Any] = {}
    for id in ids:
        try:
            pending[id] = DeploymentHandle(REPLICA, application_name(id)).statistics.remote()
        except Exception:  # it has just ended; Ray Serve has no common error
            pending[id] = None
    return {id: _answer(response) for id, response in pending.items()}


def _answer(response: Any) -> dict[str, Any] | None:
    try:
        return dict(response.result(timeout_s=_ANSWER_S)) if response is not None else None
    except Exception:  # a replica that is full, starts or ends
        return None


def lines(statistics: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines of one instance."""
    if statistics is None:
        yield "  statistics unknown: the replica does not answer"
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
    for limit in statistics["refused_limits"]:
        yield f"  not applied: {limit}"


def _time(percentiles: Mapping[str, float | None]) -> str:
    value = percentiles["p50"]
    return "unknown" if value is None else f"{value * 1000:.1f} ms"
