"""Ports, options and certificates of the control plane, before anything starts."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from pathlib import Path

import pytest
import yaml

from paddock.lab.control_plane import certificates, servers
from paddock.lab.control_plane.flags import command_lines
from paddock.lab.control_plane.identity import Identity, kubeconfig
from paddock.lab.errors import LabInputError


def test_free_ports_are_different_ones() -> None:
    ports = servers.choose_ports(None)
    assert set(ports) == set(servers.PORTS)
    assert len(set(ports.values())) == len(ports)


def test_free_ports_of_the_last_run_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_PORTS_FREED_WITHIN", 0.3)
    before = servers.choose_ports(None)
    assert servers.choose_ports(None, before) == before
    with socket.socket() as in_use:
        in_use.bind(("127.0.0.1", before["etcd"]))
        in_use.listen()
        assert servers.choose_ports(None, before) != before


def test_a_taken_port_is_one_clear_message() -> None:
    with socket.socket() as in_use:
        in_use.bind(("127.0.0.1", 0))
        in_use.listen()
        port = in_use.getsockname()[1]
        first = max(1024, port - 2)
        with pytest.raises(LabInputError, match=rf"{port} \(in use\)"):
            servers.choose_ports(first)


@pytest.mark.parametrize("first", [-1, 0, 65_530, 70_000])
def test_a_first_port_that_is_none(first: int) -> None:
    with pytest.raises(LabInputError, match="cannot be the first of 6 ports"):
        servers.choose_ports(first)


def test_everything_listens_on_loopback_only() -> None:
    ports = {name: 20_000 + number for number, name in enumerate(servers.PORTS)}
    programs = {name: Path("/bin", name) for name in servers.PROGRAMS}
    lines = command_lines(Path("/lab"), programs, ports, Identity(Path("/lab/pki")))
    assert set(lines) == set(servers.PROGRAMS)
    for name, line in lines.items():
        text_ = " ".join(line)
        assert "127.0.0.1" in text_, name
        assert "=0.0.0.0" not in text_
        assert "http://" not in text_, f"{name} talks or listens without TLS"
        bound = [word for word in line if word.split("=")[0] in ("--bind-address", "--listen-client-urls")]
        assert all("127.0.0.1" in word for word in bound)
    assert "--client-cert-auth=true" in lines["etcd"], "secrets would be open to every user of the machine"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return certificates.create(tmp_path_factory.mktemp("lab") / "pki")


def test_keys_and_tokens_are_for_their_owner_alone(identity: Identity) -> None:
    assert stat.S_IMODE(identity.folder.stat().st_mode) == 0o700
    for path in identity.folder.iterdir():
        if path.suffix in (".key", ".csv"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    tokens = [identity.token(user) for user in certificates.USERS]
    assert len(set(tokens)) == len(tokens)
    assert min(map(len, tokens)) > 40


def test_certificates_are_made_once(identity: Identity) -> None:
    before = identity.authority.read_bytes()
    assert certificates.create(identity.folder) == identity
    assert identity.authority.read_bytes() == before


def test_the_certificate_is_trusted_under_the_strictest_rules(identity: Identity) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(identity.certificate, identity.key)
    client = ssl.create_default_context(cafile=str(identity.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # what Python 3.13 does by default
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(3):
        for side in (client_side, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client_side.getpeercert()


def test_a_kubeconfig_holds_everything_and_is_yaml(identity: Identity) -> None:
    text = kubeconfig(identity, "https://127.0.0.1:6443", "admin")
    config = yaml.safe_load(text)
    assert config == json.loads(text)
    assert config["users"][0]["user"]["token"] == identity.token("admin")
    assert config["current-context"] == config["contexts"][0]["name"]
