"""Kubeconfig files as kubectl takes them, against a TLS server that stands in for an API server."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.console.output import BadFlag
from paddock.fleet import Fleet, load
from paddock.kubernetes.errors import KubernetesError
from paddock.kubernetes.kubeconfig import Cluster
from paddock.operate.snapshot.model import Snapshot
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import Unavailable
from tests.support.tls_server import TlsServer, proxy_to, serve

RESOURCES = {"resources": [{"name": "nodes", "kind": "Node", "namespaced": False}]}
SECRET = "a-secret-token"
Loaded = Callable[..., Cluster]
BEHIND = {"address": "https://kubernetes:6443"}
"""A name that this machine cannot look up: only a proxy leads there."""


@pytest.fixture
def fleet(root: Path) -> Fleet:
    return load(root, "dev").fleet


class Accepted:
    """Tokens that the server takes; without any it takes every one."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()

    def __call__(self, path: str, token: str) -> tuple[int, dict[str, Any]]:
        if self.tokens and token not in self.tokens:
            return 401, {"reason": "Unauthorized"}
        return 200, RESOURCES if path.endswith("/v1") else {"items": []}


@pytest.fixture
def accepted() -> Accepted:
    return Accepted()


@pytest.fixture
def server(tmp_path: Path, accepted: Accepted) -> Iterator[TlsServer]:
    with serve(tmp_path / "identity", accepted) as server:
        yield server


def write(folder: Path, server: TlsServer, user: dict[str, Any], *, address: str = "", **cluster: Any) -> Path:
    """Write a kubeconfig whose current context is of this server."""
    authority = base64.b64encode(server.identity.authority.read_bytes()).decode()
    where = {"server": address or server.url, "certificate-authority-data": authority, **cluster}
    document = {
        "clusters": [{"name": "any", "cluster": {key: value for key, value in where.items() if value is not None}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "any", "context": {"cluster": "any", "user": "me"}}],
        "current-context": "any",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document))
    return file


def program(folder: Path, *tokens: str, seconds: float | None = None) -> dict[str, Any]:
    """Return a user whose credential program prints the next token at each run, valid for so long."""
    until = datetime.now(UTC) + timedelta(seconds=seconds or 0)
    status = {"expirationTimestamp": f"{until:%Y-%m-%dT%H:%M:%SZ}"} if seconds is not None else {}
    for number, token in enumerate(tokens):
        (folder / f"answer-{number}").write_text(json.dumps({"status": {"token": token, **status}}))
    file = folder / "get-token"
    file.write_text(
        f"#!/bin/sh\ncd {folder}\nn=$(cat runs 2>/dev/null || echo 0)\necho $((n + 1)) > runs\n"
        f'if [ "$n" -ge {len(tokens)} ]; then n={len(tokens) - 1}; fi\ncat answer-$n\n'
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(file)}}


def runs(folder: Path) -> int:
    return int((folder / "runs").read_text())


@pytest.fixture
def loaded(tmp_path: Path, server: TlsServer, fleet: Fleet) -> Loaded:
    """Return what loads a kubeconfig of the server for a user."""

    def load_(user: dict[str, Any], **cluster: Any) -> Cluster:
        return kubeconfig.load(write(tmp_path, server, user, **cluster), None, fleet)

    return load_


def nodes(cluster: Cluster) -> list[Any]:
    return list(KubernetesReader(cluster).all("v1", "Node"))


def test_a_program_is_run_again_when_its_token_is_refused(
    loaded: Loaded, tmp_path: Path, server: TlsServer, accepted: Accepted
) -> None:
    cluster = loaded(program(tmp_path, "first", "second"))
    accepted.tokens = {"second"}
    assert nodes(cluster) == []
    assert server.tokens == ["first", "second", "second"]


def test_a_program_is_run_again_before_its_token_expires(loaded: Loaded, tmp_path: Path, server: TlsServer) -> None:
    cluster = loaded(program(tmp_path, "a", "b", seconds=30))
    nodes(cluster)
    assert "a" not in server.tokens
    assert "b" in server.tokens


def test_a_program_is_run_once_while_its_token_holds(loaded: Loaded, tmp_path: Path, server: TlsServer) -> None:
    cluster = loaded(program(tmp_path, "a", "b", seconds=900))
    nodes(cluster)
    nodes(cluster)
    assert set(server.tokens) == {"a"}
    assert runs(tmp_path) == 1


def test_a_token_that_stays_refused_is_asked_for_twice(
    loaded: Loaded, tmp_path: Path, server: TlsServer, accepted: Accepted
) -> None:
    cluster = loaded(program(tmp_path, SECRET))
    accepted.tokens = {"another"}
    with pytest.raises(Unavailable, match="does not accept the credential") as refused:
        nodes(cluster)
    assert SECRET not in str(refused.value)
    assert len(server.tokens) == 2


def test_a_file_with_a_token_is_read_anew(loaded: Loaded, tmp_path: Path, accepted: Accepted) -> None:
    (tmp_path / "token").write_text("old\n")
    cluster = loaded({"tokenFile": "token"})
    (tmp_path / "token").write_text("new\n")
    accepted.tokens = {"new"}
    assert nodes(cluster) == []


@pytest.mark.parametrize("token", [f"{SECRET}\n", f"  {SECRET} "])
def test_space_around_a_token_is_left_out(loaded: Loaded, server: TlsServer, token: str) -> None:
    nodes(loaded({"token": token}))
    assert set(server.tokens) == {SECRET}


@pytest.mark.parametrize(
    "token", [f"{SECRET}\nX-Other: 1", f"{SECRET}\x1b", f"{SECRET}\N{LATIN SMALL LETTER E WITH ACUTE}"]
)
def test_a_token_that_no_header_may_have_is_never_repeated(loaded: Loaded, token: str) -> None:
    with pytest.raises(Unavailable) as refused:
        loaded({"token": token})
    assert SECRET not in f"{refused.value} {refused.value.fix}"


def test_a_defect_of_a_reading_repeats_no_message(
    loaded: Loaded, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError(f"Invalid header value b'Bearer {SECRET}'")

    cluster = loaded({"token": "x"})
    monkeypatch.setattr(KubernetesReader, "all", fails)
    snapshot: Snapshot = read(fleet, Sources(KubernetesReader(cluster)), parts=["nodes"])
    assert "ValueError in test_kubeconfig.py" in snapshot.nodes.reason
    assert SECRET not in snapshot.nodes.reason


def test_a_request_that_http_does_not_take_repeats_no_token(loaded: Loaded, server: TlsServer) -> None:
    cluster = loaded({"token": "x"})
    api = Cluster(cluster.context, cluster.server, cluster.trust, f"{SECRET}\n").api(5)
    with pytest.raises(KubernetesError) as refused:
        api.list("v1", "Node")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("answer", ["", "not JSON", "{}", '{"status": {}}'])
def test_a_program_that_prints_no_credential_is_named(loaded: Loaded, tmp_path: Path, answer: str) -> None:
    user = program(tmp_path, "x")
    (tmp_path / "answer-0").write_text(answer)
    with pytest.raises(Unavailable, match="prints no ExecCredential"):
        loaded(user)


def test_a_program_that_fails_is_named_with_its_last_line(loaded: Loaded, tmp_path: Path) -> None:
    user = program(tmp_path, "x")
    (tmp_path / "get-token").write_text("#!/bin/sh\necho first >&2\necho 'the SSO session has expired' >&2\nexit 255\n")
    with pytest.raises(Unavailable, match="get-token, which the kubeconfig names, failed: the SSO session has expired"):
        loaded(user)


def test_a_server_is_reached_through_the_proxy_of_its_cluster(loaded: Loaded, server: TlsServer) -> None:
    with proxy_to(server) as proxy:
        address = f"http://me:pass%40word@{proxy.address}"
        cluster = loaded({"token": "x"}, **BEHIND, **{"proxy-url": address})
        assert nodes(cluster) == []
    login = base64.b64encode(b"me:pass@word").decode()
    assert set(proxy.asked) == {("kubernetes:6443", f"Basic {login}")}
    assert "pass" not in repr(cluster)


def test_a_server_is_reached_through_the_environments_proxy(
    loaded: Loaded, tmp_path: Path, server: TlsServer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "other.example")
    with proxy_to(server) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        assert nodes(loaded({"token": "x"})) == []
        assert proxy.asked == [], "this machine is never behind a proxy"
        file = write(tmp_path, server, {"token": "x"}, **BEHIND)
        assert nodes(kubeconfig.load(file, None, fleet)) == []
        assert set(proxy.asked) == {("kubernetes:6443", "")}
        monkeypatch.setenv("NO_PROXY", "kubernetes")
        assert kubeconfig.load(file, None, fleet).route.proxy == ""


def test_a_proxy_of_another_kind_is_refused(loaded: Loaded) -> None:
    with pytest.raises(Unavailable, match="a proxy of the kind socks5, where http is expected"):
        loaded({"token": "x"}, **{"proxy-url": "socks5://127.0.0.1:1080"})


def test_the_certificate_may_be_for_the_name_that_the_cluster_states(loaded: Loaded, server: TlsServer) -> None:
    assert nodes(loaded({"token": "x"}, **{"tls-server-name": "kubernetes.default"})) == []
    with pytest.raises(Unavailable, match="certificate verify failed"):
        nodes(loaded({"token": "x"}, **{"tls-server-name": "elsewhere.example"}))


def test_files_are_named_from_the_kubeconfigs_folder(loaded: Loaded, tmp_path: Path, server: TlsServer) -> None:
    relative = os.path.relpath(server.identity.authority, tmp_path)
    assert (
        nodes(loaded({"token": "x"}, **{"certificate-authority-data": None, "certificate-authority": relative})) == []
    )


def test_an_unchecked_certificate_is_the_users_choice(loaded: Loaded) -> None:
    assert nodes(loaded({"token": "x"}, **{"certificate-authority-data": None, "insecure-skip-tls-verify": True})) == []


def clusters(folder: Path, server: TlsServer, current: str, *names: str) -> Path:
    """Write a kubeconfig with a context for each cluster, called as the cluster."""
    file = write(folder, server, {"token": "x"})
    document = json.loads(file.read_text())
    (cluster,) = document["clusters"]
    document |= {
        "clusters": [{**cluster, "name": name} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in names],
        "current-context": current,
    }
    file.write_text(json.dumps(document))
    return file


OURS = "arn:aws:eks:us-west-2:123456789012:cluster/paddock-dev"
OTHER_REGION = "arn:aws:eks:eu-west-1:123456789012:cluster/paddock-dev"
OTHER_ACCOUNT = "arn:aws:eks:us-west-2:999999999999:cluster/paddock-dev"


def test_a_cluster_of_the_same_name_elsewhere_is_not_taken(tmp_path: Path, server: TlsServer, fleet: Fleet) -> None:
    assert kubeconfig.load(clusters(tmp_path, server, OURS, OTHER_REGION, OURS), None, fleet).context == OURS
    eksctl = "paddock-dev.eu-west-1.eksctl.io"
    taken = kubeconfig.load(clusters(tmp_path, server, eksctl, eksctl), None, fleet)
    assert not taken.named, "the current context is another region's"


def test_the_current_one_of_two_accounts_is_taken(tmp_path: Path, server: TlsServer, fleet: Fleet) -> None:
    file = clusters(tmp_path, server, OTHER_ACCOUNT, OURS, OTHER_ACCOUNT)
    assert kubeconfig.load(file, None, fleet).context == OTHER_ACCOUNT


def test_several_contexts_without_a_current_one_are_listed(tmp_path: Path, server: TlsServer, fleet: Fleet) -> None:
    with pytest.raises(BadFlag, match=f"2 contexts for paddock-dev: {OURS}, {OTHER_ACCOUNT}"):
        kubeconfig.load(clusters(tmp_path, server, "", OURS, OTHER_ACCOUNT), None, fleet)
