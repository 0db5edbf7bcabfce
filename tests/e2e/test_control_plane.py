"""The life of a control plane: it comes up, survives what can happen to it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.kubernetes.client import Api
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import status
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError, LabInputError
from tests.support.fleets import ROOT
from tests.support.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.usefixtures("control_plane_programs"),
]


def test_an_up_and_a_down_leave_no_process_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    lab, started = servers.up(folder, progress=Progress(quiet=True))
    assert started
    assert folder.stat().st_mode & 0o777 == 0o700
    assert lab.up
    second, started = servers.up(folder)
    assert not started
    assert second == lab
    assert set(servers.down(folder)) == set(servers.PROGRAMS)
    assert not folder.exists()
    assert not any(process.alive for process in lab.running.values())
    assert str(folder) not in subprocess.check_output(["ps", "-eo", "args"], text=True)
    assert servers.down(folder) == ()


def test_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as in_use:
        in_use.bind(("127.0.0.1", 0))
        in_use.listen()
        first = in_use.getsockname()[1] - 1
        with pytest.raises(LabInputError, match="in use"):
            servers.up(tmp_path, first_port=first, progress=Progress(quiet=True))
    assert not servers.status(tmp_path).running


def test_a_program_that_fails_ends_the_others_and_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "bin"
    wrong.mkdir()
    (wrong / "kube-apiserver").write_text("#!/bin/sh\necho v1.35.4 '[flag] something is not right'\nexit 3\n")
    (wrong / "kube-apiserver").chmod(0o755)
    monkeypatch.setenv("PADDOCK_LAB_BIN", f"{wrong}{os.pathsep}{os.environ.get('PADDOCK_LAB_BIN', '')}")
    folder = tmp_path / "lab"
    with pytest.raises(LabError, match=r"kube-apiserver ended while it started[\s\S]*something is not right"):
        servers.up(folder, progress=Progress(quiet=True))
    assert servers.status(folder).running == {}
    assert str(folder) not in subprocess.check_output(["ps", "-eo", "args"], text=True)


@pytest.mark.parametrize("started", ["etcd", "kube-apiserver"])
def test_an_interrupted_up_leaves_no_process(tmp_path: Path, started: str) -> None:
    folder = tmp_path / "lab"
    script = (
        f"from pathlib import Path; from paddock.lab.control_plane import servers; servers.up(Path({str(folder)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL) as up:
        until(lambda: started in servers.status(folder).running)
        up.send_signal(signal.SIGINT)
        up.wait(120)
    assert up.returncode
    assert servers.status(folder).running == {}
    assert f"{folder}/" not in subprocess.check_output(["ps", "-eo", "args"], text=True)


def test_the_state_is_reported_as_json(cluster: Lab) -> None:
    document = status.document(cluster)
    assert document["up"]
    assert {"system-0", "system-1"} <= {node["name"] for node in document["nodes"]}
    assert document["processes"]["etcd"] == cluster.running["etcd"].pid


def test_an_answer_that_refuses_is_a_sentence(api: Api, cluster: Lab, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=r"namespaces/nowhere: NotFound"):
        api.get("v1", "Namespace", "nowhere")
    with pytest.raises(ApiError, match="knows no Unicorn in v1"):
        api.get("v1", "Unicorn", "x")
    assert api.find("v1", "Namespace", "nowhere") is None
    assert not api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})
    misspelt = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "dta": {}}
    for ask in (api.create, api.apply):
        with pytest.raises(ApiError, match=r'(unknown field "|\.)dta'):
            ask(misspelt, dry_run=True)
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"]["token"] = "no-such-token"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    with lab_api(tmp_path / "kubeconfig") as stranger, pytest.raises(ApiError, match="Unauthorized"):
        stranger.list("v1", "Node")
