"""The programs of runner pods, since kwok executes nothing: each comes online, runs its one job, and ends.

    python -m paddock.lab.simulators.runners FOLDER URL

It plays the runner's program for the pods of ARC and of its stand-in alike.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError, KubeconfigError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import daemon
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabInputError
from paddock.lab.github.control import Control
from paddock.lab.simulators import timeline, workflow_pods
from paddock.lab.simulators.runner_sets import RUNNER_LABEL
from paddock.labels import LAB_ASKED, LAB_ENDS_AFTER

NAME = "runners"
POLL_SECONDS = 0.3
GOODBYE_SECONDS = 1
"""From the end of a job to that of its runner's pod."""


def start(lab: Lab, url: str) -> None:
    """Start the programs of a lab's runners unless they run. `url`: GitHub's stand-in."""
    if not daemon.is_running(lab, NAME):
        daemon.start(lab, NAME, "paddock.lab.simulators.runners", str(lab.folder), url)


@dataclass
class Programs:
    """The programs of all runner pods of one cluster."""

    api: Api
    github: Control
    logged: dict[str, str] = field(default_factory=dict)
    """Last error of each runner."""

    def step(self) -> None:
        """Check every runner pod once, and report its state to GitHub."""
        # GitHub's runners first: one that was online had a pod before, so a missing pod is a lost one.
        registered = {runner["name"]: runner for runner in self.github.runners()}
        pods = self.api.list("v1", "Pod", labelSelector=f"{RUNNER_LABEL}=True")
        for pod in pods:
            if (runner := registered.get(pod["metadata"]["name"])) is not None:
                self._look_after(pod, fresh=not runner["online"])
        there = {pod["metadata"]["name"] for pod in pods}
        for name, runner in registered.items():
            if runner["online"] and name not in there:
                daemon.log(f"{name}: its pod is lost")
                self.github.ended(name, "failed", lost=True)

    def _look_after(self, pod: Object, *, fresh: bool) -> None:
        """Handle one pod. Its error is logged once and does not delay the others."""
        name = pod["metadata"]["name"]
        try:
            self._follow(pod, fresh=fresh)
            self.logged.pop(name, None)
        except (ApiError, KubeconfigError, LabInputError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            if self.logged.get(name) != repr(error):
                self.logged[name] = repr(error)
                daemon.log(f"{name}: {error}")

    def _follow(self, pod: Object, *, fresh: bool) -> None:
        name, phase = pod["metadata"]["name"], pod["status"].get("phase")
        if phase in ("Succeeded", "Failed"):
            self.github.ended(name, phase.lower())
        elif phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
            template = workflow_pods.template_map(pod)
            job = self.github.online(name, self._facts(pod) if fresh and not template else {})
            if job and job["state"] == "completed":  # someone canceled it
                self._end(pod)
            elif job and template:
                self._steer(pod, template, job)
            elif job and fresh:
                daemon.log(f"{name} has job {job['id']}, for {job['seconds']:g} s")
            elif job and time.time() >= _since(job) + job["seconds"]:
                # GitHub first: ARC replaces a runner that ends while its job still counts.
                self.github.ended(name, "failed" if job["fails"] else "succeeded")
                self._end(pod)

    def _steer(self, runner: Object, template: str, job: Object) -> None:
        """Create the pod of a runner whose job has its own, and end the runner with it."""
        name, namespace = runner["metadata"]["name"], runner["metadata"]["namespace"]
        pod = self.api.find("v1", "Pod", workflow_pods.name_of(runner), namespace)
        if pod is None:
            text = self.api.get("v1", "ConfigMap", template, namespace)["data"]["pod.yaml"]
            pod = self.api.create(workflow_pods.workflow_pod(runner, text, {LAB_ENDS_AFTER: f"{job['seconds']:.3f}s"}))
            daemon.log(f"{name} has job {job['id']}, in pod {pod['metadata']['name']} for {job['seconds']:g} s")
        elif pod["status"].get("phase") == "Running" and job["pod"].get("name") != pod["metadata"]["name"]:
            self.github.online(name, self._facts(pod))
        elif (phase := pod["status"].get("phase")) in ("Succeeded", "Failed"):
            self.github.ended(name, "failed" if job["fails"] else phase.lower())
            self._end(runner)

    def _end(self, runner: Object) -> None:
        """End the runner's program, and delete the job's own pod."""
        for pod in self.api.list("v1", "Pod", labelSelector=f"{workflow_pods.OF_RUNNER}={runner['metadata']['name']}"):
            self.api.delete(pod, gracePeriodSeconds="0")
        # kwok ends its containers too, which ARC checks. It looks at a pod that changes: this one does each second.
        asked = {LAB_ENDS_AFTER: f"{GOODBYE_SECONDS}s", LAB_ASKED: f"{time.time():.0f}"}
        self.api.patch(runner, {"metadata": {"annotations": asked}})

    def _facts(self, pod: Object) -> Object:
        return facts(pod, self.api.find("v1", "Node", pod["spec"]["nodeName"]))


def _since(job: Object) -> float:
    """Return the start of a job, in seconds since 1970."""
    return float(next(entry["at"] for entry in job["history"] if entry["state"] == "running"))


def facts(pod: Object, node: Object | None) -> Object:
    """Return what a job's timeline needs of its pod and node after they are deleted."""
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions") or []}
    return {
        "name": pod["metadata"]["name"],
        "namespace": pod["metadata"]["namespace"],
        "created": pod["metadata"]["creationTimestamp"],
        "node": pod["spec"].get("nodeName", ""),
        "scheduled": conditions.get("PodScheduled", {}).get("lastTransitionTime"),
        **(timeline.node_facts(node) if node else {}),
    }


def main(folder: Path, url: str) -> None:
    """Run until the process is ended."""
    programs = Programs(lab_api(folder / "kubeconfig", timeout=10), Control(url))
    daemon.repeat(programs.step, lambda: time.sleep(POLL_SECONDS))


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(Path(sys.argv[1]), sys.argv[2]))
