"""The stand-in for GitHub: which jobs it offers to whom, what it tells a listener, and how it fails when asked to."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.lab.control_plane.certificates import rsa_key
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.github import service
from paddock.lab.github.client import Actions, ActionsError, App, Token, app_token, credential
from paddock.lab.github.server import Server
from paddock.lab.github.service import Service
from tests.support.github_control import FaultyGitHub
from tests.support.waiting import until

LABELS = ["self-hosted", "linux", "gpu"]
PERSONAL = Token("ghp_made-up")
Object = dict[str, Any]


@contextlib.contextmanager
def serving(folder: Path | None = None, port: int = 0, **options: float) -> Iterator[Server]:
    server = Server(port, folder, **options)
    server.poll_seconds = 0.2
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def control(server: Server) -> FaultyGitHub:
    return FaultyGitHub(server.url)


@pytest.fixture
def actions(server: Server) -> Actions:
    return Actions(f"{server.url}/acme", PERSONAL)


@pytest.fixture(scope="module")
def key() -> str:
    return rsa_key()


def job_messages(message: Object | None, kind: str) -> list[Object]:
    assert message is not None, f"no message, expected one with {kind}"
    return [message_ for message_ in json.loads(message["body"]) if message_["messageType"] == kind]


class AScaleSet:
    """A set with a session, as its listener has it."""

    def __init__(self, actions: Actions, name: str = "gpu", labels: list[str] | None = None) -> None:
        self.actions = actions
        self.id = actions.create_set(name, 1, LABELS if labels is None else labels)["id"]
        self.session = actions.open_session(self.id, f"{name}-listener")
        self.last = 0

    def poll(self, room: int = 10) -> Object | None:
        message = self.actions.poll(self.session, self.last, room)
        if message:
            self.last = message["messageId"]
            self.actions.acknowledge(self.session, self.last)
        return message

    def acquire(self, room: int = 10) -> list[int]:
        """Polls once and takes what is offered."""
        offered = [job["runnerRequestId"] for job in job_messages(self.poll(room), "JobAvailable")]
        return self.actions.acquire(self.id, self.session, offered)

    def statistics(self) -> Object:
        return dict(self.actions.scale_set(self.id)["statistics"])


# Which jobs go where.


@given(
    name=st.sampled_from(["gpu", "set"]),
    own=st.lists(st.sampled_from(["gpu", "GPU", "linux", "x64", "t4"]), max_size=4),
    orders=st.lists(
        st.lists(st.sampled_from(["gpu", "Linux", "x64", "T4", "set"]), min_size=1), min_size=1, max_size=5
    ),
)
def test_a_set_gets_the_jobs_all_of_whose_labels_it_has(name: str, own: list[str], orders: list[list[str]]) -> None:
    github = Service()
    number = github.create_set({"name": name, "labels": [{"name": label} for label in own]})["id"]
    jobs = {github.push({"labels": labels})["id"]: labels for labels in orders}
    session = github.open_session(number, "listener")["sessionId"]
    has = {label.lower() for label in (*own, name)}
    fitting = [job for job, labels in jobs.items() if all(label.lower() in has for label in labels)]
    message = github.poll(session, 0, None, 0, lambda: True)
    assert [job["runnerRequestId"] for job in (job_messages(message, "JobAvailable") if message else [])] == fitting
    assert github.acquire(number, jobs) == fitting


def test_the_first_set_that_acquires_a_job_gets_it(actions: Actions, control: FaultyGitHub) -> None:
    first, other = AScaleSet(actions, "one"), AScaleSet(actions, "other")
    job = control.push(LABELS)["id"]
    assert job_messages(other.poll(), "JobAvailable")
    assert first.acquire() == [job]
    assert other.actions.acquire(other.id, other.session, [job]) == []
    assert control.job(job)["scale_set"] == "one"


def test_a_job_whose_labels_nobody_serves_stays_queued(actions: Actions, control: FaultyGitHub) -> None:
    job = control.push(["self-hosted", "tpu"])["id"]
    assert AScaleSet(actions).poll() is None
    assert [entry["state"] for entry in control.job(job)["history"]] == ["queued"]


def test_offers_stop_at_the_capacity_of_a_set(actions: Actions, control: FaultyGitHub) -> None:
    pushed = [control.push(LABELS)["id"] for _ in range(20)]
    scale_set = AScaleSet(actions)
    assert scale_set.acquire(room=5) == pushed[:5]
    assert job_messages(scale_set.poll(room=5), "JobAssigned")
    assert scale_set.poll(room=5) is None
    actions.register(scale_set.id, "runner")
    control.online("runner", {})
    control.ended("runner", "succeeded")
    assert [job["runnerRequestId"] for job in job_messages(scale_set.poll(room=5), "JobAvailable")] == [pushed[5]]


def test_a_job_that_was_offered_and_not_taken_is_offered_again(
    actions: Actions, control: FaultyGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.lab.github.messages.OFFER_SECONDS", 0.1)
    job = control.push(LABELS)["id"]
    scale_set = AScaleSet(actions)
    for _ in range(2):
        assert [job["runnerRequestId"] for job in job_messages(scale_set.poll(), "JobAvailable")] == [job]
        time.sleep(0.15)


# The life of a job, as its listener is told.


def test_a_job_is_offered_acquired_run_and_over(actions: Actions, control: FaultyGitHub) -> None:
    scale_set = AScaleSet(actions)
    job = control.push(LABELS, 7.5, "train")["id"]
    assert scale_set.statistics()["totalAvailableJobs"] == 1
    assert scale_set.acquire() == [job]
    assert scale_set.statistics()["totalAssignedJobs"] == 1
    (assigned,) = job_messages(scale_set.poll(), "JobAssigned")
    assert assigned["jobDisplayName"] == "train"
    assert assigned["requestLabels"] == LABELS

    runner = actions.register(scale_set.id, "gpu-runner-abcde")
    assert actions.find_runner("gpu-runner-abcde") == runner
    begun = control.online("gpu-runner-abcde", {"node": "t4-1"})
    assert begun is not None
    assert (begun["id"], begun["seconds"]) == (job, 7.5)
    (started,) = job_messages(scale_set.poll(), "JobStarted")
    assert started["runnerName"] == "gpu-runner-abcde"
    assert scale_set.statistics()["totalBusyRunners"] == 1
    assert not actions.remove_runner(runner), "a runner at work was taken away"

    control.ended("gpu-runner-abcde", "succeeded")
    (completed,) = job_messages(scale_set.poll(), "JobCompleted")
    assert completed["result"] == "succeeded"
    assert actions.find_runner("gpu-runner-abcde") is None, "a runner has one job"
    assert scale_set.statistics()["totalAssignedJobs"] == 0
    over = control.job(job)
    assert [entry["state"] for entry in over["history"]] == ["queued", "acquired", "running", "completed"]
    times = [entry["at"] for entry in over["history"]]
    assert times == sorted(times)
    assert over["pod"] == {"node": "t4-1"}


def test_an_idle_runner_gets_the_next_job(actions: Actions, control: FaultyGitHub) -> None:
    scale_set = AScaleSet(actions)
    actions.register(scale_set.id, "warm")
    assert control.online("warm", {}) is None
    job = control.push(LABELS)["id"]
    assert scale_set.acquire() == [job]
    begun = control.online("warm", {})
    assert begun is not None
    assert begun["id"] == job


def test_a_message_comes_until_it_is_acknowledged(actions: Actions, control: FaultyGitHub) -> None:
    scale_set = AScaleSet(actions)
    control.push(LABELS)
    first = actions.poll(scale_set.session, 0, 10)
    assert first is not None
    second = actions.poll(scale_set.session, 0, 10)
    assert second is not None
    assert (second["messageId"], second["body"]) == (first["messageId"], first["body"])
    actions.acknowledge(scale_set.session, first["messageId"])
    assert actions.poll(scale_set.session, 0, 10) is None


def test_a_poll_ends_as_soon_as_there_is_something(server: Server, actions: Actions, control: FaultyGitHub) -> None:
    server.poll_seconds = 30
    scale_set = AScaleSet(actions)
    timer = threading.Timer(0.2, control.push, [LABELS])
    timer.start()
    started = time.monotonic()
    assert job_messages(scale_set.poll(), "JobAvailable")
    assert time.monotonic() - started < 25
    timer.join()


@pytest.mark.parametrize("begun", [False, True])
def test_a_canceled_job_is_over_for_its_set(actions: Actions, control: FaultyGitHub, begun: bool) -> None:
    scale_set = AScaleSet(actions)
    job = control.push(LABELS)["id"]
    scale_set.acquire()
    scale_set.poll()
    runner = actions.register(scale_set.id, "runner")
    if begun:
        control.online("runner", {})
        scale_set.poll()
    assert control.cancel(job)["result"] == "canceled"
    (completed,) = job_messages(scale_set.poll(), "JobCompleted")
    assert completed["result"] == "canceled"
    assert scale_set.statistics()["totalAssignedJobs"] == 0
    assert actions.remove_runner(runner)


def test_a_set_that_goes_gives_its_waiting_jobs_back(actions: Actions, control: FaultyGitHub) -> None:
    scale_set = AScaleSet(actions, "one")
    job = control.push(LABELS)["id"]
    scale_set.acquire()
    actions.delete_set(scale_set.id)
    assert control.job(job)["state"] == "queued"
    assert AScaleSet(actions, "other").acquire() == [job]
    actions.delete_set(scale_set.id)  # once more is no mistake


def test_a_set_keeps_its_first_labels_and_its_name(actions: Actions) -> None:
    actions.create_set("gpu", 1, LABELS)
    scale_set = actions.find_set("gpu", 1)
    assert scale_set is not None
    assert [label["name"] for label in scale_set["labels"]] == ["gpu", "self-hosted", "linux"]
    assert actions.find_set("gpu", actions.group("other")) is None
    with pytest.raises(ActionsError, match="already exists") as refused:
        actions.create_set("gpu", 1, ["more"])
    assert refused.value.status == 409


# Sessions.


def test_one_listener_at_a_time(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    scale_set = AScaleSet(actions)
    with pytest.raises(ActionsError, match="active session for owner gpu-listener") as refused:
        actions.open_session(scale_set.id, "another")
    assert refused.value.status == 409
    actions.close_session(scale_set.id, scale_set.session)
    second = actions.open_session(scale_set.id, "another")
    monkeypatch.setattr(service, "SESSION_SECONDS", 0.1)
    time.sleep(0.15)  # it was killed: nobody polls
    assert actions.open_session(scale_set.id, "third")["sessionId"] != second["sessionId"]
    with pytest.raises(ActionsError) as ended:
        actions.poll(second, 0, 1)
    assert ended.value.status == 404


def opened(actions: Actions, number: int) -> Any:
    """Return a session, or None while another has one."""
    with contextlib.suppress(ActionsError):
        return actions.open_session(number, "next")
    return None


def test_the_session_of_a_killed_listener_expires(
    server: Server, actions: Actions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SESSION_SECONDS", 0.5)
    server.poll_seconds = 60
    scale_set = AScaleSet(actions)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    path = scale_set.session["messageQueueUrl"].removeprefix(server.url)
    connection.request("GET", path, headers={"Authorization": f"Bearer {scale_set.session['messageQueueAccessToken']}"})
    time.sleep(0.3)
    connection.close()  # in the middle of a poll
    assert until(lambda: opened(actions, scale_set.id))["ownerName"] == "next"


# Tokens.


def test_an_app_logs_in_with_its_key(server: Server, control: FaultyGitHub, key: str) -> None:
    secret = {"github_app_id": "12345", "github_app_installation_id": "678", "github_app_private_key": key}
    actions = Actions(f"{server.url}/acme", credential(secret))
    job = control.push(LABELS)["id"]
    assert AScaleSet(actions).acquire() == [job]
    requests = [f"{request['method']} {request['path'].partition('?')[0]}" for request in control.requests()]
    assert requests[:3] == [
        "POST /api/v3/app/installations/678/access_tokens",
        "POST /api/v3/orgs/acme/actions/runners/registration-token",
        "POST /api/v3/actions/runner-registration",
    ]


def test_what_was_asked_is_recorded_without_secrets(server: Server, control: FaultyGitHub, key: str) -> None:
    app = App("12345", "678", key)
    scale_set = AScaleSet(Actions(f"{server.url}/acme", app))
    scale_set.actions.register(scale_set.id, "runner")
    record = json.dumps(control.requests())
    assert "runnerscalesets" in record
    assert '"ownerName": "gpu-listener"' in record
    assert "eyJ" not in record, "a token"
    assert "PRIVATE KEY" not in record
    assert key.splitlines()[1] not in repr(app)


def _jwt(head: Object, body: Object) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (head, body))
    return ".".join((*parts, "c2ln"))


NOW = int(time.time())
RS256 = {"alg": "RS256", "typ": "JWT"}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "expected: Authorization"),
        ("ghp_personal", "could not be decoded"),
        ("a.b.c", "could not be decoded"),
        (_jwt({"alg": "HS256"}, {"iss": "1", "iat": NOW, "exp": NOW + 300}), "RS256"),
        (_jwt(RS256, {"iat": NOW, "exp": NOW + 300}), "issuer"),
        (_jwt(RS256, {"iss": "1", "iat": NOW, "exp": "soon"}), "numeric"),
        (_jwt(RS256, {"iss": "1", "iat": NOW - 900, "exp": NOW - 300}), "in the future"),
        (_jwt(RS256, {"iss": "1", "iat": NOW, "exp": NOW + 90_000}), "too far in the future"),
    ],
    ids=["none", "personal", "no-jwt", "algorithm", "issuer", "expiry", "past", "too-long"],
)
def test_an_app_token_that_github_would_refuse_is_refused(server: Server, token: str, message: str) -> None:
    status, answer = ask(server, "POST", "/api/v3/app/installations/1/access_tokens", Authorization=f"Bearer {token}")
    assert status == 401
    assert message in answer["message"]


def test_a_key_that_is_none_is_a_sentence(key: str) -> None:
    with pytest.raises(ActionsError, match="not an RSA key"):
        app_token(App("1", "2", key[:200]))
    with pytest.raises(ActionsError, match="github_app_private_key"):
        credential({"github_app_id": "1", "github_app_installation_id": "2"})


def test_tokens_end_and_are_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [0.0]
    clock = SimpleNamespace(time=lambda: time.time() + late[0])
    for module in ("client", "tokens"):
        monkeypatch.setattr(f"paddock.lab.github.{module}.time", clock)
    with serving(token_seconds=600) as server:
        actions, control = Actions(f"{server.url}/acme", PERSONAL), FaultyGitHub(server.url)
        scale_set = AScaleSet(actions)
        late[0] = 601
        with pytest.raises(ActionsError, match="expired") as ended:
            actions.poll(scale_set.session, 0, 1)
        assert ended.value.status == 401
        scale_set.session = actions.renew_session(scale_set.id, scale_set.session)
        job = control.push(LABELS)["id"]
        assert scale_set.acquire() == [job]
        logins = [request for request in control.requests() if request["path"] == "/api/v3/actions/runner-registration"]
        assert len(logins) == 2


def test_a_token_opens_only_what_it_is_for(server: Server, actions: Actions) -> None:
    first, other = AScaleSet(actions, "one"), AScaleSet(actions, "other")
    path = f"/tenant/_apis/runtime/runnerscalesets/{first.id}/acquirejobs"
    for token in ("made-up", "a.b.c", other.session["messageQueueAccessToken"]):
        assert ask(server, "POST", path, [1], Authorization=f"Bearer {token}")[0] == 401
    token = first.session["messageQueueAccessToken"]
    assert ask(server, "POST", path, [1], Authorization=f"Bearer {token}")[0] == 200
    assert ask(server, "GET", "/tenant/_apis/runtime/runnerscalesets", Authorization=f"Bearer {token}")[0] == 401


# Faults.


def test_it_fails_as_often_as_it_was_asked_to(actions: Actions, control: FaultyGitHub) -> None:
    control.fault("/runnergroups", status=500, times=2)
    for _ in range(2):
        with pytest.raises(ActionsError) as failed:
            actions.group("default")
        assert failed.value.status == 500
    assert actions.group("default") == 1


def test_too_many_requests_say_when_to_come_back(actions: Actions, control: FaultyGitHub) -> None:
    control.fault("/runnergroups", status=429, retry_after=7)
    with pytest.raises(ActionsError) as failed:
        actions.group("default")
    assert (failed.value.status, failed.value.retry_after) == (429, 7)


def test_who_hangs_is_let_go(server: Server, actions: Actions, control: FaultyGitHub) -> None:
    actions.group("default")
    control.fault("/runnergroups", seconds=60, times=2)
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(actions.group("default")))
    asking.start()
    until(lambda: server.faults.pending[0].times == 1)
    assert not statuses
    control.heal()
    asking.join(30)
    assert statuses == [1]


def test_the_labs_own_control_has_no_faults(control: FaultyGitHub) -> None:
    control.fault(status=500, times=100)
    assert control.push(LABELS)["state"] == "queued"


def test_a_fault_of_another_form_is_refused(control: FaultyGitHub) -> None:
    with pytest.raises(LabInputError, match="a fault has path"):
        control.fault("/x", sttus=500)


# Bad input.


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({}, "needs labels"),
        ({"labels": "gpu"}, "a list"),
        ({"labels": []}, "needs labels"),
        ({"labels": [""]}, "needs labels"),
        ({"labels": ["gpu"], "seconds": 0}, "more than 0"),
        ({"labels": ["gpu"], "seconds": float("nan")}, "nan"),
        ({"labels": ["gpu"], "seconds": 1e9}, "at most 86400"),
        ({"labels": ["gpu"], "runs_on": 1}, "has no runs_on"),
    ],
)
def test_a_job_that_is_none_is_refused(server: Server, control: FaultyGitHub, order: Object, message: str) -> None:
    status, answer = ask(server, "POST", "/_lab/jobs", order)
    assert status == 400
    assert message in answer["message"]
    assert control.jobs() == []


def test_a_page_in_a_browser_cannot_push_jobs(server: Server, control: FaultyGitHub) -> None:
    order = {"labels": LABELS}
    assert ask(server, "POST", "/_lab/jobs", order, **{"Content-Type": "text/plain"})[0] == 415
    assert ask(server, "POST", "/_lab/jobs", order, Host="evil.example")[0] == 403
    assert control.jobs() == []


@pytest.mark.parametrize("body", [b"[1", b"[]", b'"x"', b"\xff"])
def test_a_body_of_another_form_is_a_mistake_of_the_caller(server: Server, body: bytes) -> None:
    assert ask(server, "POST", "/_lab/runners/x/ended", body)[0] in (400, 404)


def test_a_number_that_nobody_has_is_not_found(control: FaultyGitHub) -> None:
    with pytest.raises(LabInputError, match="no job 99"):
        control.job(99)


def ask(server: Server, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    raw = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request(method, path, raw, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


# Restarts.


def test_a_restart_forgets_nothing(tmp_path: Path, key: str) -> None:
    with serving(tmp_path) as first:
        actions, control = Actions(f"{first.url}/acme", PERSONAL), FaultyGitHub(first.url)
        scale_set = AScaleSet(actions)
        running, waiting = control.push(LABELS)["id"], control.push(LABELS, 3.0)["id"]
        assert scale_set.acquire(room=1) == [running]
        actions.register(scale_set.id, "runner")
        control.online("runner", {"node": "t4-1"})
        before, port = control.jobs(), first.server_port
    with serving(tmp_path, port):
        assert control.jobs() == before
        assert {message_["messageType"] for message_ in json.loads((scale_set.poll(room=2) or {})["body"])} == {
            "JobAssigned",
            "JobStarted",
            "JobAvailable",
        }, "the session and its token are good after the restart"
        assert scale_set.actions.acquire(scale_set.id, scale_set.session, [waiting]) == [waiting]
        control.ended("runner", "succeeded")
        assert control.job(running)["result"] == "succeeded"
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, f"{file.name} can be read by others"


def test_a_state_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 2}'):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(LabError, match="not a state of the stand-in"):
            Server(0, tmp_path)


def test_a_taken_port_is_a_sentence(server: Server) -> None:
    with pytest.raises(LabError, match=f"port {server.server_port}"):
        Server(server.server_port)
