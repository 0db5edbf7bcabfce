"""`inv runners.rerun` in the lab: a real control plane whose spot node is taken back; stand-ins for GitHub, ARC, AWS.

The scheduler's events and the node's end are real. What EC2 says of the instances is made of the nodes that were there.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.console.output import JsonOutput
from paddock.kubernetes.client import Api, Object
from paddock.lab.control_plane.servers import Lab
from paddock.operate.runners.rerun import command
from paddock.operate.runners.rerun.command import Rerun, rerun
from paddock.operate.snapshot.model import Snapshot, moment
from paddock.operate.snapshot.read import read as read_snapshot
from paddock.operate.sources import interruptions
from tests.support import fleets, spot
from tests.support.aws_account import Account, Answer, answering
from tests.support.github_control import FaultyGitHub
from tests.support.kubernetes import gpu_nodes
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

LABELS = ["self-hosted", "gpu"]
REPOSITORY = "acme/app"
GROUP = "eks-t4-spot-0a1b2c3-5ac0d7b6"
MakeSet = Callable[..., Object]


@dataclass
class Machines:
    """Instances of the lab's GPU nodes, with AWS's answers about them."""

    api: Api
    launched: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """Node and launch by instance."""
    ended: dict[str, datetime] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)

    def look(self) -> None:
        there = {str(node["spec"]["providerID"]).rpartition("/")[2]: node for node in gpu_nodes(self.api)}
        for id_, node in there.items():
            made = moment(node["metadata"]["creationTimestamp"])
            assert made is not None
            self.launched.setdefault(id_, (node["metadata"]["name"], made - timedelta(seconds=30)))
        for id_ in self.launched:
            if id_ not in there:
                self.ended.setdefault(id_, datetime.now(UTC))

    def of(self, node: str) -> str:
        return next(id_ for id_, (name, _) in self.launched.items() if name == node)

    def account(self) -> Account:
        self.look()
        answers: dict[str, Answer] = {
            "eks.ListNodegroups": {"nodegroups": ["t4-spot"]},
            "eks.DescribeNodegroup": {
                "nodegroup": {
                    "nodegroupName": "t4-spot",
                    "labels": {"paddock.dev/pool": "t4"},
                    "resources": {"autoScalingGroups": [{"name": GROUP}]},
                }
            },
            "autoscaling.DescribeAutoScalingGroups": {"AutoScalingGroups": []},
            "autoscaling.DescribeScalingActivities": {"Activities": [self._activity(id_) for id_ in self.ended]},
            "ec2.DescribeInstances": {"Reservations": [{"Instances": [self._instance(id_) for id_ in self.launched]}]},
            "ec2.DescribeSpotInstanceRequests": {"SpotInstanceRequests": [self._request(id_) for id_ in self.launched]},
        }
        return Account(answers)

    def _instance(self, id_: str) -> Object:
        node, launched = self.launched[id_]
        code = "Server.SpotInstanceTermination" if id_ in self.taken_back else "Client.UserInitiatedShutdown"
        over = {"State": {"Code": 48, "Name": "terminated"}, "PrivateDnsName": "", "StateReason": {"Code": code}}
        runs = {"State": {"Code": 16, "Name": "running"}, "PrivateDnsName": node}
        tags = [{"Key": "Name", "Value": "paddock-dev-t4"}]
        return {"InstanceId": id_, "LaunchTime": launched, "Tags": tags, **(over if id_ in self.ended else runs)}

    def _request(self, id_: str) -> Object:
        ends = "instance-terminated-no-capacity" if id_ in self.taken_back else "instance-terminated-by-user"
        over = id_ in self.ended
        status = {"Code": ends if over else "fulfilled", "UpdateTime": self.ended.get(id_) or self.launched[id_][1]}
        return {"InstanceId": id_, "Status": status}

    def _activity(self, id_: str) -> Object:
        return {
            "ActivityId": id_,
            "AutoScalingGroupName": GROUP,
            "Description": f"Terminating EC2 instance: {id_}",
            "Cause": "an instance was taken out of service in response to an EC2 health check",
            "StartTime": self.ended[id_],
            "StatusCode": "Successful",
        }


@pytest.fixture
def project(tmp_path: Path, hub: FaultyGitHub, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stack dev with the lab's GitHub in GitHub's place."""
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        shutil.copy(fleets.ROOT / name, tmp_path)
    file = tmp_path / "Pulumi.dev.yaml"
    server = f'{hub.url}/acme\n      serverVersion: "3.21"'
    file.write_text(file.read_text().replace("https://github.com/acme", server))
    (tmp_path / "key").write_text("ghp_made-up-for-the-lab")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PADDOCK_ROOT", str(tmp_path))
    return tmp_path


def looked(project: Path, cluster: Lab, machines: Machines) -> dict[str, Any]:
    """Run the command once, and return its report."""
    with pytest.MonkeyPatch.context() as patch:
        answering(patch, machines.account())
        report = rerun(Rerun(kubeconfig=cluster.kubeconfig, github_key=project / "key", yes=True))
    assert not isinstance(report, int)
    assert report.exit_code == 0
    return report.document()


def started(hub: FaultyGitHub, number: int) -> Object | None:
    job = hub.job(number)
    return job if job["state"] == "running" else None


def is_over(hub: FaultyGitHub, number: int) -> bool:
    return bool(hub.job(number)["state"] == "completed")


def attempts(hub: FaultyGitHub, run: int) -> list[Object]:
    return [job for job in hub.jobs() if job["run"] == run]


def test_job_of_a_reclaimed_node_runs_again_twice_and_a_failed_one_never(
    cluster: Lab, hub: FaultyGitHub, api: Api, make_set: MakeSet, project: Path
) -> None:
    make_set(maxRunners=1)
    machines = Machines(api)
    own = hub.push(LABELS, 1.0, "test", repository=REPOSITORY, fails=True)["id"]
    lost = hub.push(LABELS, 3600, "train", repository=REPOSITORY)["id"]
    for attempt in (1, 2, 3):
        number = attempts(hub, lost)[-1]["id"]
        running = until(lambda number=number: machines.look() or started(hub, number))
        machines.look()
        node = running["pod"]["node"]
        machines.taken_back.add(machines.of(node))
        spot.reclaim(cluster, node, notice_seconds=0.5)
        until(lambda number=number: is_over(hub, number))

        lines = {line["job"]: line for line in looked(project, cluster, machines)["jobs"]}

        assert lines[own]["state"] == "left", lines[own]
        line = lines[number]
        if attempt == 3:
            assert (line["state"], "at most twice" in line["message"]) == ("left", True), line
            break
        assert (line["state"], line["node"]) == ("rerun", node), line
        # In a lab nodes follow each other within what counts as one moment: then either instance may be it.
        assert line["instance"] in (machines.of(node), None if attempt > 1 else "")
        assert [job["attempt"] for job in attempts(hub, lost)] == list(range(1, attempt + 2))
    assert [job["attempt"] for job in attempts(hub, lost)] == [1, 2, 3]
    assert [job["attempt"] for job in attempts(hub, own)] == [1]
    asked = [entry["path"] for entry in hub.requests() if entry["path"].endswith("/rerun")]
    assert len(asked) == 2
    kept = interruptions.read("dev") or ()
    assert [one.repository for one in kept] == [REPOSITORY] * 3


def test_watch_waits_for_the_run_and_then_runs_the_job_again(
    cluster: Lab, hub: FaultyGitHub, api: Api, make_set: MakeSet, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_set()
    machines = Machines(api)
    lost = hub.push(LABELS, 3600, "train", repository=REPOSITORY)["id"]
    beside = hub.push(LABELS, 3600, "beside", repository=REPOSITORY, run=lost)["id"]
    nodes = [until(lambda number=number: started(hub, number))["pod"]["node"] for number in (lost, beside)]
    machines.look()
    machines.taken_back.add(machines.of(nodes[0]))
    report = project / "report.json"

    def states() -> dict[int, str]:
        document = json.loads(report.read_text()) if report.exists() else {"jobs": []}
        return {line["job"]: line["state"] for line in document["jobs"]}

    over = threading.Event()

    def read(*args: Any, **kwargs: Any) -> Snapshot:
        if over.is_set():  # as Ctrl-C does in the middle of a pass
            raise KeyboardInterrupt
        return read_snapshot(*args, **kwargs)

    def watch() -> None:
        account = machines.account()
        account.answers["ec2.DescribeInstances"] = lambda asked: machines.account().answers["ec2.DescribeInstances"]
        account.answers["ec2.DescribeSpotInstanceRequests"] = lambda asked: machines.account().answers[
            "ec2.DescribeSpotInstanceRequests"
        ]
        answering(monkeypatch, account)
        fleet: dict[str, Any] = {"kubeconfig": cluster.kubeconfig, "github_key": project / "key"}
        rerun(Rerun(**fleet, watch=True, yes=True, json=JsonOutput.parse(str(report))))

    monkeypatch.setattr(command, "read", read)
    monkeypatch.setattr(command, "POLL", 0.3)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    until(report.exists)
    spot.reclaim(cluster, nodes[0], notice_seconds=0.5)
    until(lambda: states().get(lost) == "waits")
    hub.cancel(beside)
    until(lambda: len(attempts(hub, lost)) == 3)
    assert [job["name"] for job in attempts(hub, lost)] == ["train", "beside", "train"]
    assert states().get(beside) in (None, "left")
    over.set()
    watching.join(timeout=60)
    assert not watching.is_alive()
