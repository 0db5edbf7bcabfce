"""Logs of listeners and controllers: read over HTTP from a stand-in, freed of secrets, matched with what is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.fleet import Stack
from paddock.operate.snapshot.logs import targets, without_secrets
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.snapshot.read import _logs
from paddock.operate.sources.kubernetes import LOG_BYTES, KubernetesReader
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.operate.why.links.log_faults import FAULTS
from paddock.operate.why.walk import Walk, walks
from tests.operate.conftest import AT
from tests.support.chain_faults import FAULTS as TESTED
from tests.support.chain_faults_arc import ends_again_and_again, listener_is_older_than_the_controller
from tests.support.chain_faults_logs import CONFLICT, ENDS, controller_says, listener_ends, log
from tests.support.chain_objects import LISTENER, RUNNERS, container
from tests.support.chain_world import World, variant
from tests.support.log_server import Logs, serve


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def reader(logs: Logs, tmp_path: Path) -> Iterator[KubernetesReader]:
    with serve(logs, tmp_path) as cluster:
        yield KubernetesReader(cluster)


def why(snapshot: Snapshot) -> Walk:
    (result,) = walks(snapshot, "dev", "gpu")
    return result


def verdict(world: World, reader: KubernetesReader) -> tuple[str, str]:
    """Return runbook and evidence of the broken link, with the logs that the stand-in has."""
    snapshot = world.snapshot()
    result = why(replace(snapshot, logs=_logs(reader, snapshot)))
    outcome = result.outcomes[result.link]
    assert result.verdict == "broken"
    return outcome.runbook, outcome.evidence


def test_reason_in_the_log_is_named_over_http(world: World, reader: KubernetesReader, logs: Logs) -> None:
    listener_ends(world)
    logs.texts[LISTENER, False] = f"2026/11/24 11:58:01 {CONFLICT}\n".encode()
    runbook, evidence = verdict(world, reader)
    assert runbook == "listener-session-conflict"
    assert "already has an active session" in evidence
    assert logs.asked[0]["container"] == "listener"


def test_log_of_the_container_before_is_read_too(world: World, reader: KubernetesReader, logs: Logs) -> None:
    """ARC 0.14.2 restarts no listener; another version may."""
    world.no_runner()
    status = container("listener", waiting={"reason": "CrashLoopBackOff", "message": "back-off 5m0s"})
    status |= {"restartCount": 9, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    world.listener_pod()["status"] |= {"conditions": [], "containerStatuses": [status]}
    logs.texts[LISTENER, False] = b"time=2026-11-24T11:59:59Z level=INFO msg=starting\n"
    logs.texts[LISTENER, True] = f"2026/11/24 11:58:01 {CONFLICT}\n".encode()
    assert verdict(world, reader)[0] == "listener-session-conflict"


def test_log_of_a_listener_that_is_made_again_is_followed_to_its_end(
    world: World, reader: KubernetesReader, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ARC deletes the pod as soon as it ends, so that no later request finds the reason."""
    monkeypatch.setattr("paddock.operate.snapshot.read._LOG_INTERVAL", 0.02)
    ends_again_and_again(world)
    logs.texts[LISTENER, False] = b"time=2026-11-24T11:59:59Z level=INFO msg=starting\n"
    logs.later[LISTENER] = f"2026/11/24 11:58:01 {CONFLICT}\n".encode()
    logs.refusals = 2  # its container is being created
    runbook, evidence = verdict(world, reader)
    assert runbook == "listener-session-conflict"
    assert "has had 6 pods" in evidence
    assert {query["follow"] for query in logs.asked} == {"true"}


def test_listener_that_is_followed_and_stays_silent_takes_no_longer(
    world: World, reader: KubernetesReader, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.operate.sources.kubernetes._LOG_SECONDS", 0.2)
    ends_again_and_again(world)
    logs.texts[LISTENER, False] = b"time=2026-11-24T11:59:59Z level=INFO msg=starting\n"
    logs.silent = 10
    logs.later[LISTENER] = CONFLICT.encode()
    began = time.monotonic()
    runbook, evidence = verdict(world, reader)
    assert time.monotonic() - began < 5
    assert (runbook, evidence.endswith("msg=starting")) == ("listener-crashing", True)


def test_words_of_the_reading_before_count(world: World) -> None:
    listener_ends(world, CONFLICT)
    before = world.snapshot()
    world.logs.clear()
    result = why(replace(world.snapshot(), earlier=before))
    assert result.outcomes["listener"].runbook == "listener-session-conflict"


def test_reason_in_the_log_counts_before_an_old_image(world: World) -> None:
    listener_is_older_than_the_controller(world)
    log(world, LISTENER, f"2026/11/24 11:58:01 {CONFLICT}")
    assert why(world.snapshot()).outcomes["listener"].runbook == "listener-session-conflict"


def test_log_says_what_a_server_refuses() -> None:
    """A scale set of GitHub Enterprise Server may fail for the reasons of any."""
    world = World(variant("server"), AT)
    refused = "failed to get access token for GitHub App auth (401 Unauthorized)"
    controller_says(world, refused)
    assert why(world.snapshot()).outcomes["scale-set"].runbook == "scale-set-app-refused"


def test_unknown_words_change_no_verdict(world: World, reader: KubernetesReader, logs: Logs) -> None:
    listener_ends(world)
    logs.texts[LISTENER, False] = b"2026/11/24 11:58:01 Application returned an error: something new at GitHub\n"
    runbook, evidence = verdict(world, reader)
    assert runbook == "listener-crashing"
    assert evidence.endswith("its log ends: Application returned an error: something new at GitHub")


@pytest.mark.parametrize(
    "words",
    [
        # The cluster's API, not GitHub.
        f"{ENDS}failed to handle message: could not patch ephemeral runner status, error: Patch "
        '"https://172.20.0.1:443/apis": dial tcp 172.20.0.1:443: connect: connection refused',
        # A queue's token that has expired is renewed.
        f"{ENDS}failed to get message: failed to refresh message session: request GET "
        'https://broker.actions.githubusercontent.com failed(status="401 Unauthorized"): message queue token expired',
    ],
)
def test_similar_faults_are_distinguished(world: World, words: str) -> None:
    listener_ends(world, words)
    result = why(world.snapshot())
    assert result.outcomes[result.link].runbook == "listener-crashing"


def test_earlier_errors_of_a_listener_do_not_count(world: World) -> None:
    listener_ends(world, f"{CONFLICT}\n2026/11/24 11:59:01 Application returned an error: something new")
    result = why(world.snapshot())
    assert result.outcomes[result.link].runbook == "listener-crashing"


def test_errors_about_another_scale_set_do_not_count(world: World) -> None:
    refused = "failed to get access token for GitHub App auth (401 Unauthorized)"
    for runner_set, namespace in (("gpu-x8", RUNNERS), ("gpu", "others")):
        again = World(world.stack, AT)
        controller_says(again, refused, runner_set, namespace)
        result = why(again.snapshot())
        assert result.outcomes[result.link].runbook == "scale-set-not-registered"


def test_forbidden_logs_are_said_with_the_right(world: World, reader: KubernetesReader, logs: Logs) -> None:
    logs.forbidden = True
    listener_ends(world)
    snapshot = world.snapshot()
    reading = _logs(reader, snapshot)
    assert (reading.known, reading.permission) == (False, "get pods/log")
    runbook, evidence = verdict(world, reader)
    assert (runbook, "its log is not known: logs: may not get pods/log" in evidence) == ("listener-crashing", True)


def test_log_that_is_no_utf8_is_read(world: World, reader: KubernetesReader, logs: Logs) -> None:
    listener_ends(world)
    logs.texts[LISTENER, False] = b"\xff\xfe\x00\x1b[31m\n2026/11/24 " + CONFLICT.encode() + b" \xe2\x28\xa1\n"
    runbook, evidence = verdict(world, reader)
    assert runbook == "listener-session-conflict"
    assert "\x1b" not in evidence


def test_end_of_a_huge_log_is_found_within_its_bounds(world: World, reader: KubernetesReader, logs: Logs) -> None:
    listener_ends(world)
    filler = b"x" * 20_000 + b"\n"
    logs.texts[LISTENER, False] = filler * 500 + CONFLICT.encode() + b"\n"
    assert verdict(world, reader)[0] == "listener-session-conflict"
    assert all(int(query["limitBytes"]) <= LOG_BYTES for query in logs.asked)


def test_server_that_sends_more_than_asked_is_cut_off(reader: KubernetesReader, logs: Logs) -> None:
    logs.honours_limits = False
    logs.texts[LISTENER, False] = b"y" * 8_000_000
    assert len(reader.log_end("arc-systems", LISTENER, "listener", previous=False)) == LOG_BYTES


def test_slow_log_ends_in_time(reader: KubernetesReader, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.operate.sources.kubernetes._LOG_SECONDS", 0.5)
    logs.honours_limits, logs.seconds_a_piece = False, 0.3
    logs.texts[LISTENER, False] = b"y" * 2_000_000
    began = time.monotonic()
    assert reader.log_end("arc-systems", LISTENER, "listener", previous=False)
    assert time.monotonic() - began < 5


def test_pod_without_a_log_is_not_found(reader: KubernetesReader) -> None:
    with pytest.raises(NotFound):
        reader.log_end("arc-systems", LISTENER, "listener", previous=True)


def test_server_that_does_not_answer_is_said(reader: KubernetesReader) -> None:
    nowhere = KubernetesReader(replace(reader.cluster, server="https://127.0.0.1:1"))
    with pytest.raises(Unavailable, match="does not answer"):
        nowhere.log_end("arc-systems", LISTENER, "listener", previous=False)


def test_logs_of_a_healthy_fleet_are_not_read(world: World) -> None:
    assert targets(world.snapshot()) == []


def test_at_most_eight_pods_are_read(world: World) -> None:
    listener_ends(world)
    pod, listener = world.listener_pod(), world.get("AutoscalingListener")
    for number in range(20):
        name = {"name": f"many-{number}", "namespace": "arc-systems"}
        world.objects += [{**pod, "metadata": name}, {**listener, "metadata": name}]
    assert len({target.pod for target in targets(world.snapshot())}) == 8


# Secrets.

KEY = "MIIEowIBAAKCAQEA" + "q" * 48
SECRETS = {
    "token": ("using ghs_0123456789abcdefABCDEF0123456789abcd now", "ghs_0123"),
    "fine-grained": ("github_pat_11ABCDEFG0123456789_abcdefghijklmnop", "github_pat_11"),
    "JWT": ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl end", "eyJpc3Mi"),
    "bearer": ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
    "key": (f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----", "MIIE"),
    "half a key": (f"{KEY}\n{KEY}\n-----END RSA PRIVATE KEY-----", "MIIE"),
    "key in JSON": (r'"github_app_private_key":"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIB\n"', "MIIEowIB"),
    "proxy": ("proxyconnect http://user:hunter22@proxy.acme:3128 failed", "hunter22"),
    "field": ('"token": "0123456789abcdef"', "0123456789abcdef"),
    "escaped field": (r"{\"encodedJITConfig\":\"aGVsbG8gd29ybGQ\"}", "aGVsbG8"),
    "signature": ("https://blob.example/log?sp=r&sig=AbCdEfGh%3D&se=1", "AbCdEfGh"),
}


@pytest.mark.parametrize("case", SECRETS)
def test_secrets_are_never_repeated(case: str, world: World) -> None:
    text, secret = SECRETS[case]
    assert secret not in without_secrets(text)
    listener_ends(world, f"Application returned an error: {text}")
    result = why(world.snapshot())
    assert secret not in str(result.document())


@given(st.text(alphabet="abcdefXYZ0189_", min_size=16, max_size=60), st.sampled_from("pousr"))
def test_no_token_of_github_survives(rest: str, kind: str) -> None:
    assert f"gh{kind}_{rest}" not in without_secrets(f'error: "gh{kind}_{rest}" was refused')


def test_words_that_tell_a_fault_survive(stack: Stack) -> None:
    for fault in TESTED:
        for one in fault.world(AT).logs:
            assert without_secrets(one["text"]) == one["text"]
            assert "(hidden)" not in one["text"], fault.name


def test_every_known_message_is_of_a_fault_that_is_tested() -> None:
    books = {book for fault in FAULTS for book in (fault.listener, fault.scale_set) if book}
    assert books <= {one.runbook for one in TESTED if one.world(AT).logs}


def test_reading_of_logs_is_unknown_only_where_it_was_tried(world: World) -> None:
    snapshot = world.snapshot()
    listener_ends(world, "words")
    result = why(replace(world.snapshot(), logs=Reading(reason="no answer within 10 s")))
    assert "its log is not known: no answer within 10 s" in result.outcomes["listener"].evidence
    assert why(snapshot).verdict != "broken"
