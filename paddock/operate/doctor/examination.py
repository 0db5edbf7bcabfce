"""All checks of a stack, run side by side: one that fails or hangs leaves the others."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from paddock.fleet import ExistingNetwork
from paddock.fleet.model.cluster import ExistingCluster, KubeconfigCluster, NewCluster
from paddock.fleet.nodes import capacities
from paddock.operate.doctor.checks import (
    account,
    admission,
    capacity,
    cluster,
    controllers,
    dry_runs,
    github,
    machine,
    network,
    permissions,
    push_role,
    quotas,
    retention,
    software,
    there,
)
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import NO_CREDENTIALS, Examination, Result, Status
from paddock.operate.sources.aws import NoCredentials
from paddock.operate.sources.unavailable import Unavailable
from paddock.plan.quota import quota_needs

WORKERS = 16
_TICK = 0.2
"""Seconds between looks at the clock, so that a Ctrl-C is answered."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check by name; `area` and `name` are those of its line where nobody answers it."""

    area: str
    name: str
    run: Callable[[Context], Iterable[Result]]


def checks(context: Context) -> tuple[Check, ...]:
    """Return the checks that apply to a stack, in the order of the report."""
    return (
        *_machine(context),
        *(_account() if context.uses_aws else ()),
        *([Check("permissions", "EC2 dry runs", dry_runs.dry_runs)] if context.makes_cluster_parts else []),
        *([Check("permissions", cluster.ACCESS, cluster.deployer)] if context.makes_cluster_parts else []),
        *(_there(context) if context.uses_aws else ()),
        *(_quotas(context) if context.uses_aws else ()),
        *(_capacity(context) if context.makes_cluster_parts else ()),
        *_software(context),
        *(_network(context) if context.makes_cluster_parts else ()),
        *_cluster(context),
        *_github(context),
    )


def _machine(context: Context) -> Iterator[Check]:
    yield Check("tools", "pulumi", machine.pulumi)
    if context.fleet.owns_nodes:
        yield Check("tools", "aws", machine.aws)
    yield Check("tools", "kubectl", machine.kubectl)
    if context.fleet.holds("images") and context.fleet.images.repositories:
        yield Check("tools", "docker", machine.docker)


def _account() -> Iterator[Check]:
    yield Check("account", "credentials", account.credentials)
    yield Check("account", "account", account.account)
    yield Check("account", "region", account.region)
    yield Check("account", "clock", account.clock)
    yield Check("permissions", "pulumi up", permissions.permissions)


def _there(context: Context) -> Iterator[Check]:
    for kind in there.KINDS:
        if context.makes_cluster_parts or not kind.in_cluster:
            yield Check(there.AREA, kind.title, there.names(kind))
    push = context.fleet.images.push
    if push and push.provider and context.fleet.holds("images"):
        yield Check(there.AREA, "images.push.provider", there.provider(push))
    if isinstance(context.fleet.cluster, ExistingCluster) and context.fleet.cluster.present:
        yield Check(there.AREA, "cluster.present", there.present)
    if context.makes_cluster_parts:
        yield Check(there.AREA, "endpoints", there.endpoints)
        if not isinstance(context.fleet.network, ExistingNetwork):
            yield Check(there.AREA, "interfaces", there.interfaces)


def _quotas(context: Context) -> Iterator[Check]:
    for need in quota_needs(context.fleet):
        # Pods, and addresses of subnets that are not there yet, are the plan's alone.
        if need.code or need.unit == "vCPU":
            yield Check("quotas", f"{need.name} ({need.code})" if need.code else need.name, quotas.quota(need))


def _capacity(context: Context) -> Iterator[Check]:
    yield Check("capacity", "instance types", capacity.offerings)
    for name, pool in context.fleet.pools.items():
        if "spot" in capacities(pool):
            yield Check("capacity", f"pools.{name} spot price", capacity.spot_price(pool))
            yield Check("capacity", f"pools.{name} spot score", capacity.placement_score(pool))


def _software(context: Context) -> Iterator[Check]:
    if context.makes_cluster_parts and not isinstance(context.fleet.cluster, KubeconfigCluster):
        yield Check("software", f"Kubernetes {context.fleet.cluster.version}", software.kubernetes)
        yield Check("software", f"cluster {context.fleet.cluster_name}", cluster.cluster)
        if isinstance(context.fleet.cluster, ExistingCluster):
            yield Check("software", cluster.AGENT, cluster.roles_of_pods)
        for name, pool in context.fleet.pools.items():
            yield Check("software", f"pools.{name} image", software.machine_image(pool))
    if context.fleet.holds("runners"):
        for image, keys in software.runner_images(context).items():
            yield Check("software", ", ".join(keys), software.runner_image(image, keys))
    if retention.has_pins(context):
        yield Check("software", retention.SUBJECT, retention.images)


def _network(context: Context) -> Iterator[Check]:
    if isinstance(context.fleet.network, ExistingNetwork):
        for id_ in context.fleet.network.existing.subnets:
            yield Check("network", id_, network.subnet(id_))
        yield Check("network", context.fleet.network.existing.vpc, network.names)
        if isinstance(context.fleet.cluster, NewCluster):
            yield Check("network", network.ZONES, network.zones)
        yield Check("network", "ways out", network.ways_out_of_subnets)
    yield Check("network", "cluster.endpoint.allow", network.endpoint)


def _cluster(context: Context) -> Iterator[Check]:
    held = context.fleet.holds
    if held("cluster") or held("runners"):
        yield Check(controllers.AREA, controllers.NAMESPACES, controllers.reading(controllers.namespaces))
        yield Check(controllers.AREA, controllers.CRDS, controllers.reading(controllers.crds))
        yield Check(controllers.AREA, controllers.OBJECTS, controllers.reading(controllers.objects))
    if held("runners"):
        yield Check(controllers.AREA, controllers.ARC, controllers.reading(controllers.runner_controllers))
    if held("cluster"):
        yield Check(controllers.AREA, controllers.PROGRAMS, controllers.reading(controllers.programs))


def _github(context: Context) -> Iterator[Check]:
    if context.fleet.holds("runners"):
        yield Check("github", "registration", github.registration)
        for name, run in admission.CHECKS:
            yield Check("github", name, run)
    if context.fleet.holds("images") and (push := context.fleet.images.push):
        yield Check("github", push_role.SUBJECT, push_role.push_role(push))


def examine(
    context: Context, progress: Callable[[int, int, str], None] = lambda done, total, waiting: None
) -> Examination:
    """Run every check and return the report. `progress` gets the checks done, all, and the name of one that runs.

    Threads are daemons, so an interrupt ends the examination at once: nothing that they do needs to be undone.
    """
    began, at = time.monotonic(), datetime.now(UTC)
    pending = checks(context)
    results: dict[int, tuple[Result, ...]] = {}
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, tuple[Result, ...]]] = queue.SimpleQueue()
    for index in range(len(pending)):
        todo.put(index)

    def work() -> None:
        while True:
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            done.put((index, _results(pending[index], context)))

    for _ in range(min(WORKERS, len(pending))):
        threading.Thread(target=work, daemon=True, name="doctor").start()
    while len(results) < len(pending):
        waiting = next(check.name for index, check in enumerate(pending) if index not in results)
        progress(len(results), len(pending), waiting)
        try:
            index, lines = done.get(timeout=_TICK)
        except queue.Empty:
            continue
        results[index] = lines
    return Examination(
        stack=context.stack.name,
        fleet=context.fleet.name,
        region=context.fleet.region,
        account=_account_number(context),
        at=at,
        seconds=round(time.monotonic() - began, 2),
        results=tuple(result for index in sorted(results) for result in results[index]),
    )


def _results(check: Check, context: Context) -> tuple[Result, ...]:
    """Return the lines of one check. What it yielded before it failed stays."""
    lines: list[Result] = []
    try:
        lines.extend(check.run(context))
    except NoCredentials:
        lines.append(_unknown(check, NO_CREDENTIALS))
    except Unavailable as error:
        fix = error.fix or (f"allow {error.permission}" if error.permission else "")
        lines.append(_unknown(check, str(error), fix, error.permission))
    except Exception as error:  # a defect of one check is not a reason to hide the others
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"  # never the message: it may hold what was read
        message = f"a bug in this check, please report it: {type(error).__name__} in {where}"
        lines.append(_unknown(check, message))
    return tuple(lines)


def _unknown(check: Check, message: str, fix: str = "", permission: str = "") -> Result:
    status: Status = "unknown"
    return Result(status=status, area=check.area, subject=check.name, message=message, fix=fix, permission=permission)


def _account_number(context: Context) -> str | None:
    if not context.uses_aws:
        return None
    try:
        return context.identity().account
    except Unavailable:
        return None
