"""The real ARC in a lab: runs the programs of its controller's and listeners' pods, which kwok only pretends to run.

    python -m paddock.lab.simulators.arc_programs FOLDER MANAGER LISTENER

It is a kubelet for these pods alone. Each program runs with the arguments and environment of its pod, as its service
account, in a mount namespace where the account's token is at the path that Kubernetes promises.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import processes
from paddock.lab.control_plane import daemon, programs
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.errors import LabInputError
from paddock.lab.simulators import arc, runners
from paddock.lab.simulators.runner_sets import VERSION

NAME = "arc-programs"
MANAGER, LISTENER = "arc-manager", "arc-listener"
"""The programs `/manager` and `/ghalistener` of the image gha-runner-scale-set-controller, under names of their own."""
_PROGRAMS = {"/manager": MANAGER, "/ghalistener": LISTENER}
_PODS = "app.kubernetes.io/component in (controller-manager, runner-scale-set-listener)"
# Listeners and controllers share this machine's ports, so nothing of theirs may listen; the last of a flag counts.
_LISTEN_NOWHERE = ("--metrics-addr=0", "--listener-metrics-addr=0", "--listener-metrics-endpoint=")
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
_ENTER = f"""
mount -t tmpfs tmpfs /var/run
mkdir -p {_ACCOUNT}
mount --bind "$0" {_ACCOUNT}
exec setpriv --pdeathsig KILL "$@"
"""
"""Ends with this process, also when that is killed."""
_TOKEN_SECONDS = 7 * 24 * 3600
POLL_SECONDS = 0.3
RESTART_SECONDS = 1.0
GRACE_SECONDS = 5.0


def unavailable_reason() -> str:
    """Return why the real ARC cannot run on this machine; empty where it can."""
    missing = sorted({MANAGER, LISTENER} - set(programs.locate((MANAGER, LISTENER))))
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not here"
    tools = sorted({"unshare", "setpriv", "mount"} - set(programs.locate(("unshare", "setpriv", "mount"))))
    if tools:
        return f"{', '.join(tools)} of util-linux {'is' if len(tools) == 1 else 'are'} not here"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this system gives no user namespaces, which ARC's programs are run in: {tried.stderr.strip()}"
    return ""


def start(lab: Lab, url: str) -> None:
    """Make the lab run ARC's pods, and the programs of its runners, unless it does. `url`: GitHub's stand-in.

    Raises LabInputError where `unavailable_reason` has something to say, or where the stand-in for ARC serves this lab.
    """
    if why := unavailable_reason():
        raise LabInputError(f"the real ARC cannot run here: {why}")
    if daemon.is_running(lab, arc.NAME):
        raise LabInputError("the stand-in for ARC serves this lab's scale sets\n    fix: ./inv lab.down, then lab.up")
    runners.start(lab, url)
    if not daemon.is_running(lab, NAME):
        paths = programs.locate((MANAGER, LISTENER))
        arguments = (str(lab.folder), str(paths[MANAGER]), str(paths[LISTENER]))
        daemon.start(lab, NAME, "paddock.lab.simulators.arc_programs", *arguments)


@dataclass
class Kubelet:
    """Runs the programs of ARC's pods of one cluster."""

    api: Api
    folder: Path
    authority: str
    binaries: Mapping[str, Path]
    """MANAGER and LISTENER."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By the pod's uid."""
    not_before: dict[str, float] = field(default_factory=dict)

    def step(self) -> None:
        """Check every pod once: start, restart and end its program."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        for uid in self.running.keys() - pods.keys():
            self._end(uid)
        for uid, pod in pods.items():
            if pod["status"].get("phase") != "Running":
                continue
            if uid not in self.running:
                if time.monotonic() >= self.not_before.get(uid, 0):
                    self._start(uid, pod)
            elif self.running[uid].poll() is not None:
                self._ended(uid, pod)

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for uid in list(self.running):
            self._end(uid)

    def _pods(self) -> Iterator[Object]:
        for pod in self.api.list("v1", "Pod", labelSelector=_PODS):
            is_arc = (pod["spec"]["containers"][0].get("command") or [""])[0] in _PROGRAMS
            if is_arc and not pod["metadata"].get("deletionTimestamp"):
                yield pod

    def _start(self, uid: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        container, there = pod["spec"]["containers"][0], self.folder / "run" / NAME / uid
        self._mounted(pod, there)
        program = _PROGRAMS[container["command"][0]]
        arguments = [*(container.get("args") or []), *(_LISTEN_NOWHERE if program == MANAGER else ())]
        log = self.folder / "logs" / f"{name}.log"
        log.touch(mode=0o600)
        with log.open("ab") as output:
            self.running[uid] = subprocess.Popen(
                [*_UNSHARE, "sh", "-ec", _ENTER, there / "account", self.binaries[program], *arguments],
                env=self._environment(pod, container, there),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        daemon.log(f"{name} runs {program}, process {self.running[uid].pid}")

    def _mounted(self, pod: Object, there: Path) -> None:
        """Write the files that the kubelet would mount: the service account, and volumes that are secrets."""
        meta, spec = pod["metadata"], pod["spec"]
        files = {
            "account/token": self._token(pod),
            "account/ca.crt": self.authority,
            "account/namespace": meta["namespace"],
        }
        for volume in spec.get("volumes") or []:
            if "secret" in volume:
                secret = self.api.get("v1", "Secret", volume["secret"]["secretName"], meta["namespace"])
                for key, value in (secret.get("data") or {}).items():
                    files[f"{volume['name']}/{key}"] = base64.b64decode(value).decode()
        for path, content in files.items():
            for folder in (there.parent, there, (there / path).parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            write_private(there / path, content)

    def _token(self, pod: Object) -> str:
        meta = pod["metadata"]
        account = pod["spec"].get("serviceAccountName") or "default"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": _TOKEN_SECONDS,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
            },
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
        return str(self.api.request("POST", path, request)["status"]["token"])

    def _environment(self, pod: Object, container: Object, there: Path) -> dict[str, str]:
        server = urlsplit(self.api.server)
        environment = {
            processes.MARK: str(self.folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "KUBERNETES_SERVICE_HOST": server.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        moved = {mount["mountPath"]: str(there / mount["name"]) for mount in container.get("volumeMounts") or []}
        for variable in container.get("env") or []:
            value = str(variable.get("value") or _field(pod, variable.get("valueFrom") or {}))
            for inside, outside in moved.items():
                if value.startswith(f"{inside}/"):
                    value = outside + value[len(inside) :]
            environment[variable["name"]] = value
        return environment

    def _ended(self, uid: str, pod: Object) -> None:
        status, name = self.running[uid].poll(), pod["metadata"]["name"]
        daemon.log(f"{name} has ended, with status {status}")
        self._end(uid)
        self.not_before[uid] = time.monotonic() + RESTART_SECONDS
        if pod["spec"].get("restartPolicy") != "Never":
            return
        if status:
            self._mend(pod)
        container = pod["spec"]["containers"][0]
        over = {"exitCode": abs(status or 0), "reason": "Error" if status else "Completed"}
        status_fields = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        phase = "Failed" if status else "Succeeded"
        change = {"phase": phase, "containerStatuses": [{**status_fields, "state": {"terminated": over}}]}
        self.api.patch(pod, {"status": change}, "status")

    def _mend(self, pod: Object) -> None:
        # https://github.com/actions/actions-runner-controller/issues/4489: two EphemeralRunnerSets are made for one
        # scale set, both are deleted again, and a listener for one of them fails for ever.
        meta = pod["metadata"]
        listener = self.api.find(VERSION, "AutoscalingListener", meta["name"], meta["namespace"])
        if listener is None:
            return
        name, namespace = (listener["spec"][key] for key in ("ephemeralRunnerSetName", "autoscalingRunnerSetNamespace"))
        if self.api.find(VERSION, "EphemeralRunnerSet", name, namespace) is None:
            daemon.log(f"{meta['name']} is of {name}, which is gone: it is deleted, and ARC makes another")
            self.api.delete(listener)

    def _end(self, uid: str) -> None:
        process = self.running.pop(uid)
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder / "run" / NAME / uid)


def _field(pod: Object, source: Mapping[str, Any]) -> str:
    """Return a variable's value that Kubernetes takes from the pod's metadata."""
    path = (source.get("fieldRef") or {}).get("fieldPath", "")
    group, _, name = path.partition(".")
    return str(pod["metadata"].get(name, "")) if group == "metadata" else ""


def main(folder: Path, manager: Path, listener: Path) -> None:
    """Run until the process is ended."""
    kubeconfig = folder / "kubeconfig"
    cluster = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    # Files of an earlier process that was killed.
    shutil.rmtree(folder / "run" / NAME, ignore_errors=True)
    kubelet = Kubelet(lab_api(kubeconfig, timeout=10), folder, authority, {MANAGER: manager, LISTENER: listener})
    try:
        daemon.repeat(kubelet.step, lambda: time.sleep(POLL_SECONDS))
    finally:
        kubelet.end()


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(*map(Path, sys.argv[1:4])))
