"""Pools and runners of a stack file, for the runners that another program's file describes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.console.output import BadFlag
from paddock.fleet import Fleet as StackFleet
from paddock.fleet import FleetError
from paddock.fleet.sizing.capacity import available, runner_request
from paddock.init.gpu_choice import Choice, smallest, sold_whole
from paddock.init.moving.model import Fleet, Found

_ORDER = (
    "name",
    "labels",
    "group",
    "gpus",
    "cpu",
    "memory",
    "min",
    "max",
    "warm",
    "container",
    "image",
    "shm",
    "environment",
    "volumes",
)
_NAME_MAX = 30
_RESERVED = frozenset({"on", "off", "yes", "no", "y", "n", "true", "false", "null"})
"""Words that YAML reads as something else than text."""
NO_GPU = "it asks for no GPU: keep it where it is, or on ARC's own chart (docs/moving.md)"
_MENDED = ("container", "warm", "min", "max", "environment", "volumes", "shm", "group", "image", "cpu", "memory")
"""Keys without which a runner that is refused may be taken, in the order in which they are tried."""
Parse = Callable[[dict[str, Any]], StackFleet]
"""Reads pools and runners as a stack file would have them. Raises FleetError."""


@dataclass
class _Pool:
    """A pool to be: its GPU, how many a node has, and the runners on it by their new names."""

    gpu: str
    gpus: int
    runners: dict[str, Found] = field(default_factory=dict)


def parts(fleet: Fleet, choice: Choice, parse: Parse) -> str:
    """Return the text of `pools` and `runners`; notes of what could not be taken go to the runners.

    Runners without a GPU are left out. Where the file does not say which GPU, it is that of `choice`. Raises
    FleetError.
    """
    pools = _pools(fleet, choice)
    if not pools:
        reasons = "; ".join(f"{note.runner}: {note.text}" for note in fleet.notes() if note.runner and not note.key)
        raise BadFlag(f"--from: no runner of the file can be in a stack file: {reasons}\n    fix: docs/moving.md")
    instances = {name: _instances(name, pool, choice, parse) for name, pool in pools.items()}
    text = ["    pools:"]
    for name, pool in pools.items():
        text += _pool(name, pool, instances[name])
    text.append("    runners:")
    for name, pool in pools.items():
        for key, runner in pool.runners.items():
            text += _runner(key, name, runner)
    return "\n".join(text) + "\n"


def _pools(fleet: Fleet, choice: Choice) -> dict[str, _Pool]:
    pools: dict[str, _Pool] = {}
    taken: set[str] = set()
    sets: dict[frozenset[str], str] = {}
    for runner in fleet.runners:
        if not runner.gpus:
            runner.notes.clear()
            runner.leave("", runner.elsewhere or NO_GPU)
            continue
        gpu = _gpu(runner, choice)
        if not any(sold_whole(instance, choice.region) for instance in catalog.gpu_instances(gpu, runner.gpus)):
            runner.leave("", f"no machine with {runner.gpus} {catalog.gpu(gpu).name} is sold in {choice.region}")
            continue
        labels = frozenset(label.lower() for label in runner.keys.get("labels", ()))
        if labels and labels in sets:
            runner.notes.clear()
            runner.leave("", f"its labels are those of {sets[labels]}: raise the max of that")
            continue
        name = _name(runner.name, taken)
        sets[labels] = runner.key = name
        if runner.named and name != runner.name and runner.keys.get("name") != runner.name:
            kept = runner.name in runner.keys.get("labels", ())
            found = "the old name stays a label" if kept else "runs-on with the old name finds none"
            runner.changed("name", f"{name} in the stack file, and as a label: {found}")
        pool = next((p for p in pools.values() if (p.gpu, p.gpus) == (gpu, runner.gpus) and _alike(p, runner)), None)
        if pool is None:
            key = _name(gpu if runner.gpus == 1 else f"{gpu}-x{runner.gpus}", set(pools))
            pool = pools[key] = _Pool(gpu, runner.gpus)
        pool.runners[name] = runner
    return pools


def _alike(pool: _Pool, runner: Found) -> bool:
    other = next(iter(pool.runners.values()))
    return (other.instances, other.capacity) == (runner.instances, runner.capacity)


def _gpu(runner: Found, choice: Choice) -> str:
    known = catalog.instances()
    named = [known[name].gpu for name in runner.instances if name in known and known[name].gpu]
    return named[0] if named and named[0] else runner.gpu or choice.gpu.key


def _name(text: str, taken: set[str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_NAME_MAX].strip("-")
    plain = plain if plain[:1].isalpha() and plain not in _RESERVED else f"gpu-{plain}"[:_NAME_MAX].strip("-")
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain[: _NAME_MAX - len(str(number)) - 1]}-{number}"
    taken.add(name)
    return name


def _instances(name: str, pool: _Pool, choice: Choice, parse: Parse) -> tuple[InstanceType, ...]:
    """Return the instance types that have room for each runner of a pool: those of the file, or the smallest."""
    given = [catalog.instances()[type_] for runner in pool.runners.values() for type_ in runner.instances]
    offered = list(dict.fromkeys(given)) or [
        instance for instance in catalog.gpu_instances(pool.gpu, pool.gpus) if sold_whole(instance, choice.region)
    ]
    for key, runner in pool.runners.items():
        _mend(name, key, runner, offered, parse)
        fitting = [instance for instance in offered if _has_room(name, key, runner, instance, parse)]
        for share in ("cpu", "memory") if not fitting else ():
            if runner.keys.pop(share, None):
                runner.leave(runner.taken[share], "no machine has so much next to its GPUs: a runner gets its share")
        offered = fitting or offered
    if given:
        return tuple(offered)
    chosen, on_spot = smallest(offered, choice.region)
    for runner in pool.runners.values():
        runner.capacity = runner.capacity or ("spot" if on_spot else "on-demand")
    return chosen


def _mend(pool: str, key: str, runner: Found, offered: Sequence[InstanceType], parse: Parse) -> None:
    """Leave out the keys without which a runner could be on machines of some type, and say why."""

    def refusal(keys: dict[str, Any]) -> str:
        said = ""
        for instance in offered:
            try:
                _tried(pool, key, keys, instance, parse)
            except FleetError as error:
                said = said or str(error).partition("\n")[0].rpartition(f"runners.{key}")[2].lstrip(".")
            else:
                return ""
        return said

    while why := refusal(keys := _stack_keys(runner)):
        entry = re.match(r"(environment|volumes)\.([^.:\s]+)", why)
        if entry and keys.get(entry[1], {}).pop(entry[2], None):
            runner.leave(f"{runner.taken[entry[1]]}.{entry[2]}", why.partition(": ")[2])
            continue
        named = [name for name in _MENDED if name in keys and why.startswith(name)]
        alone = [name for name in _MENDED if name in keys and not refusal(_without(keys, name))]
        if not (alone or named):
            raise BadFlag(
                f"--from: runner {runner.name} cannot be in a stack file: {why}\n    fix: take it out of the file"
            )
        last = (alone or named)[0]
        del runner.keys[last]
        runner.leave(runner.taken[last], why)


def _without(keys: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key != name}


def _tried(pool: str, key: str, keys: dict[str, Any], instance: InstanceType, parse: Parse) -> StackFleet:
    """Return a fleet of one runner on one type of machine. Raises FleetError."""
    return parse({
        "pools": {pool: {"instances": [instance.name], "nodes": {"max": 1}}},
        "runners": {key: {"pool": pool, **keys}},
    })  # fmt: skip


def _has_room(pool: str, key: str, runner: Found, instance: InstanceType, parse: Parse) -> bool:
    """Return whether a runner may be on machines of a type, and has room there."""
    try:
        fleet = _tried(pool, key, _stack_keys(runner) | {"min": 0, "max": 1, "warm": []}, instance, parse)
    except FleetError:
        return False
    room = available(fleet, fleet.pools[pool], instance) - runner_request(fleet, fleet.runners[key])
    return room.cpu_m >= 0 and room.memory_mib >= 0


def _stack_keys(runner: Found) -> dict[str, Any]:
    return {key: runner.keys[key] for key in _ORDER if key in runner.keys}


def _pool(name: str, pool: _Pool, instances: Sequence[InstanceType]) -> Iterator[str]:
    runners = pool.runners.values()
    first = next(iter(runners))
    source = first.taken.get("instances") or first.taken.get("gpu") or "the file does not say which"
    yield f"      {name}:"
    yield f"        instances: {_flow([instance.name for instance in instances])}   # {_comment(source)}"
    yield f"        capacity: {first.capacity or 'spot'}"
    if first.capacity != "on-demand":
        yield "        fallback: on-demand      # bought when there is no spot"
    jobs = sum(runner.keys.get("max", 5) for runner in runners)
    yield f"        nodes: {{max: {-(-jobs * pool.gpus // min(i.gpu_count for i in instances))}}}"


def _runner(key: str, pool: str, runner: Found) -> Iterator[str]:
    yield f"      {key}:"
    yield f"        pool: {pool}"
    for name, value in _stack_keys(runner).items():
        yield f"        {name}: {_flow(value)}   # {_comment(runner.taken[name])}"


def _comment(text: str) -> str:
    """Return a text that stays on the line of its comment."""
    return re.sub(r"[^\x20-\x7e]+", " ", text)


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True).strip()
    return text.removesuffix("...").strip()
