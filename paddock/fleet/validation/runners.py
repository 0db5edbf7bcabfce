"""Checks of runners: names that ARC accepts, pools with room for them, unique labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import yaml

from paddock import catalog
from paddock.fleet.errors import Key, Problem, did_you_mean
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.pool import GpuPool, Mps
from paddock.fleet.model.runner import SCALE_SET_NAME_MAX, Runner

_NOT_TEXT = re.compile(r"y|n|[-+]?[0-9][0-9_.e+-]*|0o[0-7]+", re.IGNORECASE)
"""Words that Helm's YAML parser may not read as text, although ours does."""
_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)+")
"""Text to every YAML parser: of the words with a meaning, numbers and dates begin otherwise and none has a dash."""


def problems(fleet: Fleet) -> Iterator[Problem]:
    yield from _unquoted(("github", "runnerGroup"), fleet.github.runner_group, "runner group")
    for runner in fleet.runners.values():
        yield from _named(fleet, runner)
        yield from _warm(runner)
        yield from _placed(fleet, runner)
    yield from _labels(fleet)


def _named(fleet: Fleet, runner: Runner) -> Iterator[Problem]:
    name, scale_set = runner.name, runner.scale_set
    if len(scale_set) > SCALE_SET_NAME_MAX:
        yield Problem(
            ("runners", name, "name"),
            f"the scale-set name {scale_set} has {len(scale_set)} characters",
            f"at most {SCALE_SET_NAME_MAX}, the limit of ARC's chart",
            f"write name: {scale_set[:SCALE_SET_NAME_MAX].rstrip('-')}",
        )
    yield from _unquoted(("runners", name, "name"), scale_set, "scale-set name")
    if runner.group:
        yield from _unquoted(("runners", name, "group"), runner.group, "runner group")
    if runner.group is not None and runner.group.lower() != "default" and fleet.github.scope == "repository":
        yield Problem(
            ("runners", name, "group"),
            "a repository has no runner groups; organisations and enterprises do",
            "no group",
            "remove group",
        )


def _unquoted(key: Key, word: str, kind: str) -> Iterator[Problem]:
    """ARC's chart writes names without quotes: YAML reads `ops #1` as `ops`, another group, and `on` as no text."""
    if _TEXT.fullmatch(word):
        return
    try:
        read = yaml.safe_load(f"name: {word}\n")
    except (yaml.YAMLError, ValueError, RecursionError):  # such as of the 45th of a month
        read = None
    if read == {"name": word} and not _NOT_TEXT.fullmatch(word):
        return
    plain = re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-").lower()
    yield Problem(
        key,
        f'"{word}" as a {kind} is something else to YAML, and the chart of ARC writes it without quotes',
        "letters, digits and dashes, no number alone, without a message of YAML's own such as on",
        f"such as {'-'.join(filter(None, ('gpu' if kind == 'scale-set name' else 'runners', plain)))}",
    )


def _warm(runner: Runner) -> Iterator[Problem]:
    for index, warm in enumerate(runner.warm):
        if _unknown_time_zone(warm.time_zone):
            yield Problem(
                ("runners", runner.name, "warm", index, "timeZone"),
                f'there is no time zone "{warm.time_zone}"',
                "a name of the IANA database, such as America/New_York",
                did_you_mean(warm.time_zone, available_timezones()),
            )


def _placed(fleet: Fleet, runner: Runner) -> Iterator[Problem]:
    name = runner.name
    if runner.pool not in fleet.pools:
        yield Problem(
            ("runners", name, "pool"),
            f'there is no pool "{runner.pool}"',
            f"one of {', '.join(fleet.pools)}",
            did_you_mean(runner.pool, fleet.pools),
        )
        return
    pool = fleet.pools[runner.pool]
    if pool.replicas > 1 and runner.gpus > 1:
        yield Problem(
            ("runners", name, "gpus"),
            f"pool {runner.pool} shares each GPU {pool.replicas} ways, and a runner can hold one share only",
            "gpus: 1",
            "write gpus: 1, or use a pool that does not share its GPUs",
        )
        return
    if runner.shm is not None and isinstance(pool.sharing, Mps):
        yield Problem(
            ("runners", name, "shm"),
            f"pool {runner.pool} shares its GPUs by MPS, where /dev/shm is one of 64 MiB for all runners of a node",
            "no shm",
            "remove shm, or use a pool that shares its GPUs by timeSlicing or MIG",
        )
    most = max(pool.gpu_resources_per_node(instance) for instance in pool.types)
    if runner.gpus > most:
        largest = max(pool.types, key=pool.gpu_resources_per_node)
        yield Problem(
            ("runners", name, "gpus"),
            f"{runner.gpus} GPUs are more than a node of pool {runner.pool} has ({largest.name}: {most})",
            f"at most {most}",
            _larger_instance(pool, runner.gpus),
        )
    whole = all(pool.gpu_resources_per_node(instance) == runner.gpus for instance in pool.types)
    if runner.container == "dind" and not whole:
        yield Problem(
            ("runners", name, "container"),
            "Docker-in-Docker is privileged and would see every GPU of a node that it shares",
            "a runner that takes all GPUs of its node",
            "write container: kubernetes-novolume, or use a pool of 1-GPU instances",
        )


def _unknown_time_zone(name: str) -> bool:
    """Return true if Kubernetes would refuse it. A machine without the IANA database accepts every name."""
    return not _is_time_zone(name) and _is_time_zone("America/New_York")


def _is_time_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _larger_instance(pool: GpuPool, gpus: int) -> str:
    model = pool.types[0].gpu
    fits = [t for t in catalog.instances().values() if t.gpu == model and t.gpu_count >= gpus]
    smallest = min(fits, key=lambda t: (t.gpu_count, t.vcpus), default=None)
    if smallest is None:
        return f"no instance type has {gpus} of them; ask for fewer"
    return f"make a pool of {smallest.name}, which has {smallest.gpu_count}"


def _labels(fleet: Fleet) -> Iterator[Problem]:
    owners: dict[frozenset[str], str] = {}
    names: dict[str, str] = {}
    for name, runner in fleet.runners.items():
        scale_set, labels = runner.scale_set, frozenset(label.lower() for label in runner.effective_labels)
        if labels in owners:
            field = "labels" if runner.labels else "name"
            yield Problem(
                ("runners", name, field),
                f"runners {owners[labels]} and {name} have the same labels: {', '.join(runner.effective_labels)}",
                "a set of labels that no other runner has; GitHub does not say which of two would get a job",
                f"add a label of its own, such as {scale_set}",
            )
        elif scale_set in names:
            yield Problem(
                ("runners", name, "name"),
                f"runners {names[scale_set]} and {name} have the same scale-set name {scale_set}",
                "a name of its own",
                f"leave name out: it is {name} by default" if name != scale_set else "write another name",
            )
        owners.setdefault(labels, name)
        names.setdefault(scale_set, name)
