"""What runs in runner pods, since kwok executes nothing: each comes online, does its one job, and is over.

    python -m paddock.lab.runners FOLDER URL

It plays the runner's program for the pods of ARC and of its stand-in alike.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from paddock.lab import beside
from paddock.lab.api import Api, Object
from paddock.lab.control_plane import Lab
from paddock.lab.github.control import Control
from paddock.lab.runner_sets import RUNNER_LABEL

NAME = "runners"
LOOK_SECONDS = 0.3
ENDS_AFTER = "lab.paddock.dev/ends-after"
"""Annotation of a pod: how long it works. See stages.yaml."""


def start(lab: Lab, url: str) -> None:
    """Starts the programs of a lab's runners where they do not run. `url`: GitHub's stand-in."""
    if not beside.runs(lab, NAME):
        beside.start(lab, NAME, "paddock.lab.runners", str(lab.folder), url)


@dataclass
class Programs:
    """The programs of all runner pods of one cluster."""

    api: Api
    github: Control

    def step(self) -> None:
        """Looks at every runner pod once, and tells GitHub what happened to it."""
        # GitHub's runners first: one that was online had a pod before, so that no pod now means that it was lost.
        known = {each["name"]: each for each in self.github.runners()}
        pods = self.api.list("v1", "Pod", labelSelector=f"{RUNNER_LABEL}=True")
        for pod in pods:
            if pod["metadata"]["name"] in known:
                self._follow(pod)
        there = {pod["metadata"]["name"] for pod in pods}
        for name, runner in known.items():
            if runner["online"] and name not in there:
                beside.say(f"{name}: its pod is lost")
                self.github.ended(name, "failed")

    def _follow(self, pod: Object) -> None:
        name, phase = pod["metadata"]["name"], pod["status"].get("phase")
        if phase in ("Succeeded", "Failed"):
            self.github.ended(name, phase.lower())
        elif phase == "Running" and not pod["metadata"].get("deletionTimestamp"):
            job = self.github.online(name, facts(pod))
            if job and job["state"] == "completed":  # someone canceled it
                self.api.patch(pod, {"status": {"phase": "Succeeded"}}, "status")
            elif job and ENDS_AFTER not in (pod["metadata"].get("annotations") or {}):
                beside.say(f"{name} has job {job['id']}, for {job['seconds']:g} s")
                self.api.patch(pod, {"metadata": {"annotations": {ENDS_AFTER: f"{job['seconds']:.3f}s"}}})


def facts(pod: Object) -> Object:
    """What a job's life needs to know of its pod, when that is gone."""
    conditions = {each["type"]: each for each in pod["status"].get("conditions") or []}
    return {
        "name": pod["metadata"]["name"],
        "namespace": pod["metadata"]["namespace"],
        "created": pod["metadata"]["creationTimestamp"],
        "node": pod["spec"].get("nodeName", ""),
        "scheduled": conditions.get("PodScheduled", {}).get("lastTransitionTime"),
    }


def main(folder: Path, url: str) -> None:
    """Runs until it is ended."""
    programs = Programs(Api.of(folder / "kubeconfig", timeout=10), Control(url))
    beside.repeat(programs.step, lambda: time.sleep(LOOK_SECONDS))


if __name__ == "__main__":
    beside.until_ended(lambda: main(Path(sys.argv[1]), sys.argv[2]))
