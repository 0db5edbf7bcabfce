"""What clients are told of a replica's error."""

from __future__ import annotations

import pickle

import pytest

from tests.support.packages import need

need("prometheus_client")

from paddock.serve.admission.refusal import RequestError
from paddock.serve.deployment.ingress import stated
from paddock.serve.errors import PromptTooLong, RankLost, ServeError


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PromptTooLong("the prompt has 9 tokens"), 400, "context_length_exceeded"),
        (RankLost("rank 1 has ended"), 502, "agent_lost"),
        (ServeError("the engine failed"), 502, "engine_error"),
        (ValueError("broken\nsecond line"), 502, "engine_error"),
        (RequestError("no memory", 503, "queue_full", retry_s=5), 503, "queue_full"),
        (None, 502, "engine_error"),
    ],
)
def test_an_error_of_a_replica_is_the_requests_fault_or_not(
    error: BaseException | None, status: int, code: str
) -> None:
    result = stated(pickle.loads(pickle.dumps(error)))
    assert (result.status, result.code) == (status, code)
    assert "second line" not in str(result)
    assert result.retry_s == (5 if status == 503 else 1)
