"""Logins: found where docker keeps them, and never left where they were not before."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.images.docker import Docker, api, credentials, process
from paddock.images.errors import BuildError
from tests.support.docker import stand_in

REGISTRY, PASSWORD = "reg.example:5000", "hunter2 is long"
ENCODED = base64.b64encode(b"ada:lovelace").decode()


def sent(environ: Mapping[str, str], registry: str = REGISTRY) -> dict[str, str]:
    header = credentials.header(environ, registry)["X-Registry-Auth"]
    header_fields: dict[str, str] = json.loads(base64.urlsafe_b64decode(header))
    header_fields.pop("serveraddress")
    return header_fields


def user(folder: Path, settings: Mapping[str, Any], helper: str = "") -> dict[str, str]:
    """A user with these settings of docker, and a stand-in helper `keeper` with this body."""
    home = folder / "home"
    (home / ".docker").mkdir(parents=True)
    (home / ".docker" / "config.json").write_text(json.dumps(settings))
    named = stand_in(folder / "bin", helper).folder
    (named / "docker").rename(named / "docker-credential-keeper")
    return {"HOME": str(home), "PATH": str(named)}


def test_a_login_matches_its_host_for_every_form_of_key(tmp_path: Path) -> None:
    environ = user(tmp_path, {"auths": {f"https://{REGISTRY}/v1/": {"auth": ENCODED}, "other": {"auth": "-"}}})

    assert sent(environ) == {"username": "ada", "password": "lovelace"}
    assert sent(environ, "elsewhere") == {}
    assert sent(user(tmp_path / "none", {"auths": {REGISTRY: {"auth": None}}, "credHelpers": None})) == {}


def test_the_hub_has_a_key_of_its_own(tmp_path: Path) -> None:
    environ = user(tmp_path, {"auths": {"https://index.docker.io/v1/": {"auth": ENCODED}}})

    assert sent(environ, "docker.io") == {"username": "ada", "password": "lovelace"}


def test_a_ci_systems_login_in_a_variable_is_found(tmp_path: Path) -> None:
    environ = user(tmp_path, {})
    environ["DOCKER_AUTH_CONFIG"] = json.dumps({"auths": {REGISTRY: {"auth": ENCODED}}})

    assert sent(environ) == {"username": "ada", "password": "lovelace"}


@pytest.mark.parametrize("settings", [{"credsStore": "keeper"}, {"credHelpers": {REGISTRY: "keeper"}}])
def test_a_stand_in_credential_helper_is_asked(tmp_path: Path, settings: dict[str, Any]) -> None:
    helper = f"""
        assert argv == ["get"] and sys.stdin.read() == {REGISTRY!r}
        print(json.dumps({{"ServerURL": "", "Username": "<token>", "Secret": "t0ken"}}))
    """
    assert sent(user(tmp_path, settings, helper)) == {"identitytoken": "t0ken"}


def test_a_stand_in_helper_has_no_login_or_reports_an_error(tmp_path: Path) -> None:
    unknown = 'print("credentials not found in native keychain"); sys.exit(1)'
    broken = 'print("the keychain is locked"); sys.exit(1)'

    assert sent(user(tmp_path / "a", {"credsStore": "keeper"}, unknown)) == {}
    with pytest.raises(BuildError, match="the keychain is locked"):
        sent(user(tmp_path / "b", {"credsStore": "keeper"}, broken))
    with pytest.raises(BuildError, match="docker-credential-gone, which is not on PATH"):
        sent(user(tmp_path / "c", {"credsStore": "gone"}))


@pytest.mark.parametrize("text", ["{", "[1]", '{"auths": 1}', '{"auths": {"reg.example:5000": {"auth": "%"}}}'])
def test_settings_that_cannot_be_read_are_one_message(tmp_path: Path, text: str) -> None:
    environ = user(tmp_path, {})
    (tmp_path / "home/.docker/config.json").write_text(text)

    with pytest.raises(BuildError, match="fix: "):
        sent(environ)


LOGS_IN = """
    import base64
    if argv[0].endswith("version"):
        print("Docker version 20.10.24, build 1")
    elif argv[:1] == ["login"]:
        registry, password = argv[-1], sys.stdin.read()
        if password == "wrong":
            sys.exit(f"Error response from daemon: Get https://{registry}/v2/: unauthorized: {password} is not it")
        path = os.path.join(os.environ["DOCKER_CONFIG"], "config.json")
        settings = json.load(open(path))
        assert settings["credHelpers"][registry] == "", "this would go to the keychain"
        auth = base64.b64encode(f"{argv[2]}:{password}".encode()).decode()
        settings.setdefault("auths", {})[registry] = {"auth": auth}
        json.dump(settings, open(path, "w"))
    else:
        sys.exit(1)
"""


def test_a_login_with_a_stand_in_client_ends_with_its_object(tmp_path: Path) -> None:
    settings = {"credsStore": "keeper", "auths": {"kept": {"auth": ENCODED}}, "currentContext": "far"}
    environ = user(tmp_path, settings, 'print("credentials not found"); sys.exit(1)')
    (tmp_path / "home/.docker/contexts").mkdir()
    program = stand_in(tmp_path / "client", LOGS_IN)
    docker = Docker.find({**environ, "PATH": f"{program.folder}:{environ['PATH']}"})

    docker.login(REGISTRY, "AWS", PASSWORD)
    docker.login("second", "AWS", PASSWORD)

    private = Path(docker.environ["DOCKER_CONFIG"])
    assert sent(docker.environ) == sent(docker.environ, "second") == {"username": "AWS", "password": PASSWORD}
    assert json.loads((private / "config.json").read_text())["currentContext"] == "far"
    assert (private / "contexts").resolve() == (tmp_path / "home/.docker/contexts").resolve()
    assert stat.S_IMODE((private / "config.json").stat().st_mode) == 0o600
    assert json.loads((tmp_path / "home/.docker/config.json").read_text()) == settings
    assert PASSWORD not in json.dumps(program.calls())

    del docker
    gc.collect()
    assert not private.exists()
    assert (tmp_path / "home/.docker/contexts").exists()


def test_an_incomplete_copy_of_the_users_logins_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    environ = user(tmp_path, {"auths": {REGISTRY: {"auth": ENCODED}}})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space"):
        credentials.private(environ, REGISTRY)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_early_disconnect_is_reported_with_a_stand_in_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = stand_in(tmp_path / "bin", 'sys.exit("Cannot connect to the Docker daemon at unix:///x.sock")')
    real = process.started

    @contextlib.contextmanager
    def ended(*args: Any, **kwargs: Any) -> Iterator[subprocess.Popen[bytes]]:
        with real(*args, **kwargs) as client:
            client.wait()
            yield client

    monkeypatch.setattr(process, "started", ended)
    with pytest.raises(BuildError, match="daemon does not answer"):
        api.get([f"{program.folder}/docker"], {"PATH": program.path}, "/info", {})


CANCELLED = """
import sys
from paddock.images import ecr
from paddock.tasks.program import main

ecr.is_ecr, ecr.login = lambda host: True, lambda docker, host: docker.login(host, "AWS", "of twelve hours")
words = ("images.build", "cuda-builder", "--base", "debian:12", "--push", "--registry", "reg.example/x")
sys.exit(main(["inv", *words]))
"""


def test_a_cancelled_command_ends_its_login_and_stand_in_client(tmp_path: Path, root: Path) -> None:
    hangs = f"""
    if argv[0] == "image":
        open({str(tmp_path / "hangs.part")!r}, "w").write(str(os.getpid()))
        os.rename({str(tmp_path / "hangs.part")!r}, {str(tmp_path / "hangs")!r})
        time.sleep(600)
    """
    program = stand_in(tmp_path / "client", hangs + LOGS_IN)
    (tmp_path / "tmp").mkdir()
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "PATH": program.path,
        "PADDOCK_ROOT": str(root),
    }
    running = subprocess.Popen([sys.executable, "-c", CANCELLED], env=environ, stderr=subprocess.PIPE, text=True)
    with running:
        while not (tmp_path / "hangs").exists():
            assert running.poll() is None, running.stderr and running.stderr.read()
            time.sleep(0.02)
        assert len(list((tmp_path / "tmp").glob("paddock-docker-*/config.json"))) == 1
        time.sleep(0.5)  # for Popen itself to return: who is cancelled within it leaves its child behind
        running.send_signal(signal.SIGTERM)
    assert list((tmp_path / "tmp").glob("paddock-docker-*")) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "hangs").read_text()), 0)


def test_a_password_that_a_stand_in_client_repeats_is_not_shown(tmp_path: Path) -> None:
    program = stand_in(tmp_path / "client", LOGS_IN)
    docker = Docker.find({"HOME": str(tmp_path), "PATH": str(program.folder)})

    with pytest.raises(BuildError) as error:
        docker.login(REGISTRY, "AWS", "wrong")

    assert "wants a login, or does not take this one" in str(error.value)
    assert "wrong" not in str(error.value)
