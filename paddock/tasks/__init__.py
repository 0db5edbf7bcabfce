"""Table of contents of Paddock: one line of help a task, the work in the package that the task names.

A task imports its package inside the function, so that `inv --list` starts in a moment and a runner needs no Pulumi.
"""

from __future__ import annotations

from typing import Any

from invoke.collection import Collection
from invoke.tasks import Task

from paddock.tasks import build
from paddock.tasks.completion import completion
from paddock.tasks.fleet import mirror, plan, schema
from paddock.tasks.lab import lab_demo, lab_down, lab_status, lab_up
from paddock.tasks.lifecycle import arc_upgrade, fleet_destroy
from paddock.tasks.machine import bench
from paddock.tasks.machine.gpu import GPU_TASKS
from paddock.tasks.machine.serve import SERVE_TASKS
from paddock.tasks.machine.slurm import SLURM_TASKS, configure
from paddock.tasks.machine.smoke import smoke
from paddock.tasks.onboarding import aws_permissions, github_app, init
from paddock.tasks.operate import (
    cost,
    doctor,
    runners_drain,
    runners_recycle,
    runners_rerun,
    runners_resume,
    status,
    verify,
    why,
)
from paddock.tasks.repository.catalog import catalog_instances, catalog_refresh
from paddock.tasks.repository.docs import docs_build, docs_generate
from paddock.tasks.repository.house import check, lint, lock, test


def _with_default(default: Task[Any], *others: Task[Any]) -> Collection:
    """Return a collection whose own name runs a task: `bench` is `bench.run`."""
    collection = Collection(*others)
    collection.add_task(default, default=True)
    return collection


namespace = Collection(
    *(init, plan, doctor, status, why, verify, cost, schema, mirror, smoke, configure, completion, build.wheel),
    *(check, lint, lock, test),
    images=Collection(build.images_build, build.images_list, build.images_check, build.images_size),
    runner=Collection(build.runner_build, build.runner_push),
    ami=Collection(build.ami_build, build.ami_list, build.ami_promote, build.ami_prune),
    docs=_with_default(docs_build, docs_generate),
    catalog=Collection(catalog_instances, catalog_refresh),
    bench=_with_default(bench.bench_run, bench.bench_load, bench.bench_compare, bench.bench_modes),
    aws=Collection(aws_permissions),
    github=Collection(github_app),
    gpu=Collection(*GPU_TASKS),
    serve=Collection(*SERVE_TASKS),
    slurm=Collection(*SLURM_TASKS, build.slurm_build),
    arc=Collection(arc_upgrade),
    fleet=Collection(fleet_destroy),
    runners=Collection(runners_drain, runners_resume, runners_recycle, runners_rerun),
    lab=Collection(lab_up, lab_status, lab_demo, lab_down),
)

ALIASES = {
    "build-ami": "ami.build",
    "build-image": "images.build",
    "build-runner": "runner.build",
    "push-runner": "runner.push",
}
"""Second names of tasks."""

for _alias, _name in ALIASES.items():
    namespace.add_task(namespace[_name], name=_alias)

_SLURM = (
    *("slurm.start", "slurm.health", "slurm.submit", "slurm.status", "slurm.nodes", "slurm.cancel", "slurm.test"),
    "slurm.cloud",
)

PURPOSES = {
    "Fleet: GPU runners in your AWS account": (
        *("plan", "init", "doctor", "status", "why", "verify", "cost"),
        *("runners", "arc", "fleet", "github", "aws", "mirror", "schema"),
    ),
    "Lab: that fleet on this machine, without an account": ("lab.up", "lab.demo", "lab.status", "lab.down"),
    "GPUs: those of this machine": ("gpu.list", "gpu", "smoke"),
    "Serve and bench: models on the devices there are": ("serve.plan", "serve.up", "serve", "bench.run", "bench"),
    "Slurm: a node on this machine, and its jobs": ("configure", *_SLURM),
}
"""The five things that one can do, with their tasks or collections of them; the greeting names the first of each."""

GROUPS = PURPOSES | {
    "Images, and the program for nodes": ("runner", "images", "slurm.build", "ami", "wheel"),
    "Facts, and the shell": ("catalog.instances", "completion"),
    "Maintenance of this repository": ("check", "lint", "test", "lock", "docs", "catalog.refresh"),
}
"""Tasks, or collections of them, by what they are for: the order of every list of tasks."""

ON_A_NODE = ("gpu", "smoke", "serve", "bench", *_SLURM, "catalog.instances", "completion")
"""Tasks, or collections of them, that need no checkout."""
