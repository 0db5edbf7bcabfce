"""The tests of a verification, in their order, and the cleaning up after them, whatever ends them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from paddock.errors import one_line
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import Bottlerocket
from paddock.fleet.model.runner import Runner
from paddock.kubernetes import pods as pods_
from paddock.labels import POOL, VERIFY
from paddock.operate.snapshot.model import Object, Snapshot
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.operate.verify import workloads
from paddock.operate.verify.canary import Canary, NoCanary
from paddock.operate.verify.phases import ColdStart, budgets, phases
from paddock.operate.verify.report import Proof, Verified
from paddock.operate.why.links.evidence import condition, phase, ready
from paddock.operate.why.links.node import is_plugin
from paddock.operate.why.objects import gpus_of
from paddock.operate.why.outcome import Outcome, broken
from paddock.operate.why.subject import Subject, pool_nodes, subject
from paddock.operate.why.walk import JUDGES
from paddock.runbooks import runbooks

_POLL = 1.0
_CLEANING_SECONDS = 60.0
_OF_POD = ("scheduler", "node-group", "node", "device-plugin", "image-pull")


class Jobs(Protocol):
    """Proof Jobs in the cluster, as `paddock.operate.sources.kubernetes_jobs` makes them."""

    def create(self, job: Object) -> None: ...
    def job(self, name: str) -> Object: ...
    def pods(self) -> list[Object]: ...
    def events(self, name: str, kind: str = "Pod") -> list[Object]: ...
    def log(self, pod: str) -> str: ...
    def remove(self) -> None: ...
    def left(self) -> list[str]: ...
    def close(self) -> None: ...


@dataclass
class Verification:
    """One run. `read` takes a new snapshot, `jobs` gives the Jobs of a namespace with the run's label."""

    fleet: Fleet
    stack: str
    context: str
    read: Callable[[], Snapshot]
    jobs: Callable[[str, str], Jobs]
    canary: Canary | None = None
    patience: float = 1800.0
    """Seconds for each test."""
    progress: Callable[[str], None] = lambda text: None
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    steps: list[Proof] = field(default_factory=list)
    opened: dict[str, Jobs] = field(default_factory=dict)
    poll: float = _POLL

    def verify(self) -> Verified:
        """Run every test and return the report. An interrupt ends the tests; what they made is taken away first."""
        began, at, interrupted = time.monotonic(), datetime.now(UTC), False
        left: list[str] = []
        try:
            for test in self._tests():
                self._timed(test)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            left = self._clean()
        return Verified(
            stack=self.stack,
            fleet=self.fleet.name,
            context=self.context,
            run=self.run,
            at=at,
            seconds=round(time.monotonic() - began, 1),
            interrupted=interrupted,
            steps=tuple(self.steps),
            left_behind=tuple(left),
        )

    def _tests(self) -> Iterator[Callable[[], Proof]]:
        yield self._capacity
        for runner in self.fleet.runners.values():
            yield lambda runner=runner: self._in_pod(runner, "nvidia-smi", workloads.NVIDIA_SMI)  # type: ignore[misc]
            torch = (*workloads.TORCH, str(runner.gpus))
            yield lambda runner=runner, torch=torch: self._in_pod(runner, "torch", torch)  # type: ignore[misc]
        yield self._workflow

    def _timed(self, test: Callable[[], Proof]) -> None:
        began = time.monotonic()
        step = test()
        self.steps.append(replace(step, seconds=round(time.monotonic() - began, 1)))

    # GPU nodes and their capacity.

    def _capacity(self) -> Proof:
        self.progress("nodes and capacity")
        snapshot = self.read()
        title = "GPU nodes and capacity"
        if not snapshot.nodes.known:
            return Proof(name=title, state="unknown", message=snapshot.nodes.reason, fix=snapshot.nodes.fix)
        if missing := self._no_plugin(snapshot):
            return missing
        words, present = [], 0
        for key, runner in self.fleet.runners.items():
            pool = self.fleet.pools[runner.pool]
            here = pool_nodes(snapshot, pool)
            present += len(here)
            gpus = sum(pods_.amounts((node.get("status") or {}).get("allocatable")).get(nodes.GPU, 0) for node in here)
            words.append(f"pool {pool.name}: {len(here)} of at most {pool.nodes.max} nodes, {gpus // 1000} GPUs")
            few = [(node, *gpus_of(self.fleet, node)) for node in here if ready(node) and _gpus(node)]
            if lacking := [entry for entry in few if entry[1] < entry[2]]:
                node, offered, expected = lacking[0]
                evidence = f"{node['metadata']['name']} offers {offered} of {expected} GPUs"
                return self._broken(title, broken("gpu-unhealthy", evidence, name=node["metadata"]["name"]))
            without = [node for node in here if ready(node) and not _gpus(node)]
            outcome = self._explained(snapshot, key, _waiting_pod(without[0])) if without else None
            if outcome is not None and outcome.status == "broken":
                return self._broken(title, outcome)
        message = "; ".join(dict.fromkeys(words))
        return Proof(name=title, state="pass", message=message if present else f"{message}; the first test buys one")

    def _no_plugin(self, snapshot: Snapshot) -> Proof | None:
        pools = [self.fleet.pools[runner.pool] for runner in self.fleet.runners.values()]
        if all(isinstance(self.fleet.ami(pool), Bottlerocket) for pool in pools):
            return None
        if not snapshot.daemonsets.known or any(is_plugin(item) for item in snapshot.daemonsets):
            return None
        book = runbooks()["device-plugin-missing"]
        message = f"{book.title}. {book.means}"
        return Proof(
            name="GPU nodes and capacity", state="fail", message=message, fix=book.fix_for({"stack": self.stack})
        )

    # A pod with a GPU.

    def _in_pod(self, runner: Runner, test: str, command: tuple[str, ...]) -> Proof:
        title = f"{test} on {runner.scale_set}"
        if any(step.state in ("fail", "unknown") for step in self.steps):
            return Proof(name=title, state="skip", message="an earlier test failed")
        self.progress(f"{title}: the pod")
        snapshot = self.read()
        about = subject(snapshot, runner.name)
        if about.runner_set is None:
            reason = snapshot.runner_sets.reason or f"no AutoscalingRunnerSet has the name {runner.scale_set}"
            fix = f"pulumi up --stack {self.stack}"
            return Proof(
                name=title, state="unknown" if snapshot.runner_sets.reason else "fail", message=reason, fix=fix
            )
        name = f"paddock-verify-{self.run}-{runner.name}-{test}"[:63].rstrip("-")
        seconds = int(self.patience)
        try:
            job = workloads.gpu_job(self.fleet, runner, about.runner_set, name, self.run, command, seconds)
        except workloads.NoImage as error:
            return Proof(name=title, state="skip", message=str(error))
        namespace = str(job["metadata"]["namespace"])
        jobs = self.opened.setdefault(namespace, self.jobs(namespace, f"{VERIFY}={self.run}"))
        try:
            jobs.create(job)
            return self._watch(title, jobs, name, namespace, runner)
        except Unavailable as error:
            return Proof(name=title, state="fail", message=str(error), fix=error.fix)

    def _watch(self, title: str, jobs: Jobs, name: str, namespace: str, runner: Runner) -> Proof:
        deadline = time.monotonic() + self.patience
        explained = time.monotonic()
        while True:
            pod = next((pod for pod in jobs.pods() if _job_of(pod) == name), None)
            state = phase(pod) if pod else ""
            if pod is not None and state in ("Succeeded", "Failed"):
                return self._ended(title, jobs, pod, runner)
            over = time.monotonic() > deadline
            if pod is not None and (over or time.monotonic() - explained > 10 * self.poll):
                explained = time.monotonic()
                snapshot = self.read()
                outcome = self._explained(snapshot, runner.name, pod)
                if outcome is not None and outcome.status == "broken":
                    return self._broken(title, outcome)
                if outcome is not None:
                    self.progress(f"{title}: {outcome.evidence}")
                if over:
                    detail = outcome.evidence if outcome else "it runs, and has not ended"
                    return Proof(name=title, state="fail", message=f"not done after {self.patience:.0f} s: {detail}")
            if pod is None:
                detail, final = _refusal(jobs, name)
                if final or over:
                    after = "" if final else f" after {self.patience:.0f} s"
                    message = f"Kubernetes makes no pod{after}: {detail or 'it says nothing'}"
                    fix = f"kubectl describe job {name} --namespace {namespace}"
                    return Proof(name=title, state="fail", message=message, fix=fix)
                if detail:
                    self.progress(f"{title}: {detail}")
            time.sleep(self.poll)

    def _ended(self, title: str, jobs: Jobs, pod: Object, runner: Runner) -> Proof:
        pod_name = str(pod["metadata"]["name"])
        detail = jobs.log(pod_name)
        snapshot = self.read()
        pool = self.fleet.pools[runner.pool]
        there = next((n for n in snapshot.nodes if n["metadata"]["name"] == pod["spec"].get("nodeName")), None)
        record = ColdStart(pod, there, jobs.events(pod_name), (*snapshot.activities,))
        parts = phases(record, budgets(self.fleet, pool))
        late = [
            f"{part.name} took {part.seconds:.0f} s of {part.budget_seconds:.0f} s" for part in parts if part.exceeded
        ]
        where = f"on {pod['spec'].get('nodeName')}"
        if phase(pod) == "Failed":
            outcome = self._explained(snapshot, runner.name, pod)
            if outcome is not None and outcome.status == "broken":
                return self._broken(title, outcome)
            message = f"it failed {where}: {detail or outcome.evidence if outcome else detail or 'no log'}"
            fix = f"kubectl -n {pod['metadata']['namespace']} describe pod {pod_name}"
            return Proof(name=title, state="fail", message=message, fix=fix, phases=parts)
        if late:
            fix = f"./inv why --stack {self.stack}; the parts with their budgets are in --json"
            return Proof(
                name=title,
                state="fail",
                message=f"passed {where}, too slow: {', '.join(late)}",
                fix=fix,
                phases=parts,
            )
        return Proof(name=title, state="pass", message=f"passed {where}{f': {detail}' if detail else ''}", phases=parts)

    def _explained(self, snapshot: Snapshot, runner: str, pod: Object) -> Outcome | None:
        """Return the first link from the scheduler on that is not in order, for a test's pod."""
        base = subject(snapshot, runner)
        about = Subject(base.runner_key, base.spec, base.pool, runner_set=base.runner_set, pod=pod)
        for link in _OF_POD:
            outcome = JUDGES[link](snapshot, about)
            if outcome.status != "ok":
                return outcome
        return None

    def _broken(self, title: str, outcome: Outcome) -> Proof:
        book = runbooks()[outcome.runbook]
        fix = book.fix_for({"stack": self.stack, **outcome.names})
        return Proof(name=title, state="fail", message=f"{book.title}: {outcome.evidence}", fix=fix)

    # A workflow.

    def _workflow(self) -> Proof:
        title = "canary workflow"
        if self.canary is None:
            message = "no workflow is named: --canary owner/repository/file.yml, and --github-key"
            return Proof(name=title, state="skip", message=message)
        if any(step.state in ("fail", "unknown") for step in self.steps):
            return Proof(name=title, state="skip", message="an earlier test failed")
        self.progress(f"{title}: {self.canary.name}")
        try:
            return self.canary.run(title, self.fleet, self.read, self.patience, self.poll)
        except NoCanary as error:
            return Proof(name=title, state="fail", message=str(error), fix=error.fix)

    # Cleaning up.

    def _clean(self) -> list[str]:
        """Remove all that the run made, also after an interrupt; return what is left."""
        self.progress("removing what the tests made")
        left: list[str] = []
        with _uninterrupted():
            if self.canary is not None:
                left += self.canary.clean(poll=self.poll)
            for namespace, jobs in self.opened.items():
                left += [f"{namespace}: {item}" for item in self._removed(jobs)]
                jobs.close()
        return left

    def _removed(self, jobs: Jobs) -> list[str]:
        deadline = time.monotonic() + _CLEANING_SECONDS
        while True:
            try:
                jobs.remove()
                left = jobs.left()
            except NotFound:
                left = []
            except Unavailable as error:
                left = [f"not known: {error}"]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(self.poll)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let no second Ctrl-C end the cleaning up, which is bounded."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _gpus(node: Object) -> int:
    return pods_.amounts((node.get("status") or {}).get("allocatable")).get(nodes.GPU, 0) // 1000


def _refusal(jobs: Jobs, name: str) -> tuple[str, bool]:
    """Return why a Job has no pod, and whether waiting is in vain: a quota may become free, a policy does not."""
    refusals = [event for event in jobs.events(name, "Job") if event.get("reason") == "FailedCreate"]
    failed = condition(jobs.job(name), "Failed").get("message")
    detail = one_line(str(refusals[-1].get("message") if refusals else failed or ""))
    return detail, bool(failed) or (bool(refusals) and "exceeded quota" not in detail)


def _job_of(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["name"]) for owner in owners if owner["kind"] == "Job"), "")


def _waiting_pod(node: Object) -> Object:
    """Return a pod that would go to a node as soon as it offers a GPU."""
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU"}
    labels = node["metadata"].get("labels") or {}
    resources = {"requests": {nodes.GPU: "1"}, "limits": {nodes.GPU: "1"}}
    return {
        "kind": "Pod",
        "metadata": {"name": "any", "namespace": "default"},
        "spec": {
            "nodeSelector": {POOL: labels[POOL]} if POOL in labels else {},
            "tolerations": [nodes.TAINT.toleration()],
            "containers": [{"name": "test", "resources": resources}],
        },
        "status": {"phase": "Pending", "conditions": [verdict]},
    }
