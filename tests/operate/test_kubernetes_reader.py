"""Lists of a cluster that is busy, refuses or answers nonsense, from a stand-in whose answers come in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.kubernetes.errors import ApiError, KubernetesError, Unreachable
from paddock.operate.sources import kubernetes
from paddock.operate.sources.kubernetes import KubernetesReader, refusal
from paddock.operate.sources.unavailable import NotFound, Unavailable


class Cluster:
    """Answers in turn: the pages of a list, or what goes wrong."""

    context = "lab"
    date = "Tue, 24 Nov 2026 12:00:00 GMT"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, int, dict[str, str]]] = []

    @contextmanager
    def api(self, seconds: float) -> Iterator[Cluster]:
        yield self

    def pages(self, version: str, kind: str, limit: int, **query: str) -> Iterator[Any]:
        self.asked.append((version, kind, limit, query))
        for page in self.answers.pop(0):
            if isinstance(page, Exception):
                raise page
            yield page


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a reader waits, which pass at once."""
    now, waited = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    return waited


def read(*answers: Any, patience: float = kubernetes.PATIENCE) -> list[Any]:
    return KubernetesReader(Cluster(*answers), patience).all("v1", "Node")


def test_all_pages_are_one_list_of_the_servers_time() -> None:
    cluster = Cluster([[{"a": 1}, {"b": 2}], [{"c": 3}]])
    reader = KubernetesReader(cluster)
    assert reader.all("v1", "Node", labelSelector="x=y") == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert cluster.asked == [("v1", "Node", 500, {"labelSelector": "x=y"})]
    assert reader.clock == datetime(2026, 11, 24, 12, tzinfo=UTC)
    cluster.date, cluster.answers = "", [[[]]]
    reader.all("v1", "Node")
    assert reader.clock == datetime(2026, 11, 24, 12, tzinfo=UTC), "an answer without a time changes none"


@pytest.mark.parametrize("status", [410, 429, 503])
def test_a_busy_server_is_asked_four_times(status: int, waits: list[float]) -> None:
    busy = [[{"half": 1}], ApiError(status, "", "later")]
    assert read(busy, busy, busy, [[{"whole": 1}]]) == [{"whole": 1}]
    assert waits == [0.2, 0.4, 0.8]
    with pytest.raises(Unavailable, match=r"^Node: later$"):
        read(busy, busy, busy, busy)


def test_a_busy_server_is_not_asked_beyond_the_patience(waits: list[float]) -> None:
    busy = [ApiError(503, "", "later")]
    with pytest.raises(Unavailable, match="later"):
        read(busy, busy, busy, busy, patience=0.3)
    assert waits == [0.2, 0.4]


def test_half_a_list_is_never_taken_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 20.0, 20.5])
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(Unavailable, match=r"^Node: more than 2 objects, not read within 20 s$") as raised:
        read([[{"a": 1}], [{"b": 2}], [{"c": 3}]])
    assert raised.value.fix == "run it again, nearer to the cluster"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unreachable("https://k does not answer\n    fix: x"), "^https://k does not answer$"),
        (OSError("no route"), "^no route$"),
        (KubernetesError("no JSON"), "^the server's answer is not a list of Node: no JSON$"),
        (None, "^the server's answer is not a list of Node: "),
    ],
)
def test_no_answer_and_no_list_are_said_with_what_to_try(answer: Any, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason) as raised:
        read([answer])
    assert raised.value.fix == "kubectl --context lab get nodes"


def test_a_refusal_names_the_right_that_is_missing() -> None:
    words = 'nodes is forbidden: User "x" cannot watch resource "{}" in API group "{}"'
    for error, reason, right in (
        (ApiError(401, "", "no"), "Node: the cluster does not accept the credential", ""),
        (ApiError(403, "", words.format("nodes", "")), "Node: may not watch nodes", "watch nodes"),
        (ApiError(403, "", words.format("jobs", "batch")), "Node: may not watch jobs.batch", "watch jobs.batch"),
        (ApiError(403, "", "no"), "Node: may not list Node", "list Node"),
        (ApiError(500, "", "broken"), "Node: broken", ""),
    ):
        found = refusal(error, "Node")
        assert (str(found), found.permission, type(found)) == (reason, right, Unavailable)
        assert found.fix == (f"a role that allows: {right}" if right else found.fix)
    assert isinstance(refusal(ApiError(404, "", "no"), "Node"), NotFound)
