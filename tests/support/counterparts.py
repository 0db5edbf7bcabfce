"""What tests meet beside the project itself, and what stays unproven where it is absent.

A test that skips is green. The list at the end of a run says what such a run did not look at.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which

VALUE = "…"
"""Stands for a value that is put into a reason."""


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Something that a test needs from the machine."""

    name: str
    reasons: str
    """Regular expression that matches the beginning of a skip's reason."""
    unproven: str
    """What no other test shows; empty where the skipped case does not exist on such a machine."""


COUNTERPARTS = (
    Counterpart(
        "the lab's programs", r"the lab's programs are not here|pulumi-resource-kubernetes is not there",
        "that Pulumi's engine and a Kubernetes API server accept the program",
    ),
    Counterpart(
        "cluster-autoscaler", "cluster-autoscaler is not here",
        "that the real cluster-autoscaler buys the nodes that the lab's stand-in buys",
    ),
    Counterpart("Actions Runner Controller", "the real ARC cannot run here", "that the real controller runs our sets"),
    Counterpart("moto's server", "no moto server", "that the tags of the groups are ones that AWS's API takes"),
    Counterpart("terraform", "terraform cannot run", "that `inv plan` and a Terraform plan of the same fleet agree"),
    Counterpart("pulumi", "no pulumi on PATH", "that the engine reads stack files as our reader does"),
    Counterpart(
        "Pulumi's language host", "Pulumi's own language host is not here",
        "that the CLI alone installs, previews and applies in a fresh clone",
    ),
    Counterpart("helm", "helm is not here", "that Helm renders and lists our releases"),
    Counterpart("real charts", "there are no real charts", "that the real charts render as the lab's stand-ins do"),
    Counterpart(
        "reference data", "no reference data|no CRDs of ARC|the recording has no preview",
        "that values, objects and children of the cluster are those of the real charts, CRDs and components",
    ),
    Counterpart("kubectl", "kubectl is not on PATH", "that warm capacity and workflows work with kubectl"),
    Counterpart("Grafana", "no Grafana", "that Grafana loads the dashboards"),
    Counterpart(
        "Prometheus", "no prometheus and promtool", "that a real Prometheus answers the queries of `inv cost`"
    ),
    Counterpart(
        "kube-state-metrics", "kube-state-metrics is not", "that it exports jobs of runners with our file and rights"
    ),
    Counterpart("promtool", "no promtool", "that Prometheus reads the alert rules, and fires them when it should"),
    Counterpart("the package index", "the package index cannot", "that an installation takes what README says"),
    Counterpart("checkov", "no checkov", "that each of our rules sees what checkov's rule of the same intent sees"),
    Counterpart("an engine without NVIDIA's toolkit", "docker here has NVIDIA's toolkit", ""),
    Counterpart("ParallelCluster", "no pcluster", "that ParallelCluster takes the file written for it"),
    Counterpart("hadolint", "no hadolint", "that hadolint has nothing against the Dockerfiles"),
    Counterpart("actionlint", "actionlint is not", "that actionlint has nothing against the workflows"),
    Counterpart(
        "torch, Ray and their packages", rf"no (\w+|{VALUE}) in this environment",
        "that models load, compute and serve in a cluster, and that the smoke test's programs see faults",
    ),
    Counterpart("Ray Serve LLM", "Ray Serve LLM needs", "that Ray builds its application from a fleet's arguments"),
    Counterpart("shellcheck", "no shellcheck", "that shellcheck has nothing against the scripts"),
    Counterpart(
        "Docker", r"no engine to build with|no docker-registry|docker is not on PATH|docker has no compose"
        r"|no base image|debootstrap made no|builds reach this machine",
        "that images build, and that Docker takes what is rendered for it",
    ),
    Counterpart("sshd", "no sshd", "that images build on an engine that is reached by SSH"),
    Counterpart(
        "PID namespaces", "this user may make no pid namespace|no unshare",
        "that the lease of a container that was killed is taken over",
    ),
    Counterpart("slurmd", "slurmd is not", "that Slurm takes the configuration that is rendered for it"),
    Counterpart("nvcc", "no nvcc", "that the CUDA programs compile"),
    Counterpart("a GPU", "no NVIDIA driver on this machine", "that the CUDA programs run on a GPU"),
    Counterpart(
        "C and C++ compilers", r"no C compiler|no g\+\+", "what runs against the made-up driver library, or CUDA code"
    ),
    Counterpart(
        "shells, ps and curl", rf"no ({VALUE}|[\w-]+) on PATH|needs bash", "scripts, and what is read of processes"
    ),
    Counterpart("time", "the time of --within is over", "what did not fit into three minutes: `./inv check` runs it"),
    Counterpart("packages of a task", "no packages of", "that the task is called as a user calls it"),
    Counterpart(
        "Linux", r"runners are Linux|leases (and sessions )?need|(it )?reads /proc|no /dev/full|only Linux",
        "leases, job hooks, processes and their memory, and what loading takes, which are for Linux alone",
    ),
    Counterpart("root", r"only root|gives a folder away", "what only root may do, and must not do to others"),
    Counterpart("an ordinary user", "root reads everything", "the message about a file that may not be read"),
    Counterpart(
        "a machine without GPUs", r"this machine has (a GPU|nvidia-smi)", "what is said where there is no driver"
    ),
    Counterpart("the host's process ids", "the driver's pids are another", "that a leftover GPU process is ended"),
    Counterpart("a git checkout", "not a git checkout", "that no tracked file names a machine or a registry"),
    Counterpart("", r"one process runs all|an engine names the cluster|only NVML tells Slurm", ""),
)  # fmt: skip


def counterpart_of(reason: str) -> Counterpart | None:
    """Return what a skip's reason says is absent; None where nobody has described it."""
    return next((c for c in COUNTERPARTS if re.match(c.reasons, reason)), None)


def is_here(reason: str) -> bool:
    """Return whether this machine has what a skip found absent, so that the skip is a fault; False where none can say.

    Programs are looked for where tests look: on PATH and in PADDOCK_LAB_BIN.
    """
    if match := re.match(r"no (\w+) in this environment", reason):
        return importlib.util.find_spec(match[1]) is not None
    if re.match(r"only root|gives a folder away", reason) or reason == "root reads everything":
        return (os.geteuid() == 0) != (reason == "root reads everything")
    if re.match(r"runners are Linux|leases (and sessions )?need|(it )?reads /proc$", reason):
        return sys.platform == "linux"
    programs = re.findall(r"no ([\w+.-]+)(?= on PATH|, no )", reason)
    programs += re.findall(r"^([\w-]+) is not (?:on PATH|here)", reason)
    programs += {"no C compiler": ["cc"], "needs bash": ["bash"]}.get(re.split(r" (?:on PATH|\()", reason)[0], [])
    path = os.pathsep.join(filter(None, (os.environ.get("PADDOCK_LAB_BIN"), os.environ.get("PATH", os.defpath))))
    return bool(programs) and all(which(program, path=path) for program in programs)


def summary(reasons: Iterable[str]) -> Iterator[str]:
    """Lines about the skips of a run, one a counterpart."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for reason in reasons:
        counterpart = counterpart_of(reason) or Counterpart(
            reason, "", "not described in tests/support/counterparts.py"
        )
        if counterpart.unproven:
            counts[counterpart.name, counterpart.unproven] += 1
    for (name, unproven), count in sorted(counts.items()):
        yield f"{name} ({count} skipped): {unproven}"


def skip_reasons(file: Path) -> Iterator[tuple[int, str]]:
    """Line and reason of each skip that a test file states; values inside a reason are `VALUE`."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "pytest.skip" in text or "pytest.mark.skip" in text else ():
        if not isinstance(node, ast.Call):
            continue
        match ast.unparse(node.func):
            case "pytest.skip":
                yield node.lineno, _text(node.args[0])
            case "pytest.mark.skip" | "pytest.mark.skipif":
                yield node.lineno, _text(_keywords(node)["reason"])


def _keywords(call: ast.Call) -> Mapping[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case _:
            return VALUE
