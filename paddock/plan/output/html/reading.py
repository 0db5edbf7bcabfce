"""Reads a plan's document, which may be a saved one: a part that is missing or odd is nothing, never an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Document = Mapping[str, Any]

SEVERITIES = ("error", "warning", "info")
_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti)?$")
_MEBIBYTES = {"Ki": 1 / 1024, "Mi": 1.0, "Gi": 1024.0, "Ti": 1024.0 * 1024}


def rows(source: Any, key: str) -> list[Document]:
    """The objects of a list."""
    found = source.get(key) if isinstance(source, Mapping) else None
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def part(source: Any, key: str) -> Document:
    """An object; empty when there is none."""
    found = source.get(key) if isinstance(source, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def text(source: Document, key: str, default: str = "") -> str:
    """A value in words."""
    return words(source.get(key), default)


def texts(source: Document, key: str) -> list[str]:
    found = source.get(key)
    return [words(item) for item in found] if isinstance(found, list) else []


def whole(source: Document, key: str, default: int = 0) -> int:
    found = source.get(key)
    return int(found) if isinstance(found, int | float) and abs(found) < 1e9 else default


def number(source: Document, key: str) -> float | None:
    """A number, or None where it is not known."""
    found = source.get(key)
    return (
        float(found) if isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 1e15 else None
    )


def words(value: Any, default: str = "") -> str:
    """Any value in a line."""
    match value:
        case None:
            return default
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(words(item, "unknown") for item in value)
        case Mapping():
            return ", ".join(f"{key} {words(item, 'unknown')}" for key, item in value.items())
        case _:
            return str(value)


def count(amount: int, noun: str) -> str:
    """1 -> "1 node", 2 -> "2 nodes"."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def millicores(quantity: Any) -> float:
    match = _QUANTITY.match(str(quantity))
    return 0.0 if not match else float(match[1]) * (1 if match[2] == "m" else 1000)


def mebibytes(quantity: Any) -> float:
    match = _QUANTITY.match(str(quantity))
    return 0.0 if not match else float(match[1]) * _MEBIBYTES.get(match[2] or "", 0.0)


def cores(quantity: Any, digits: int = 2) -> str:
    """`"3640m"` -> `"3.64"`, `"4"` -> `"4"`."""
    return f"{millicores(quantity) / 1000:,.{digits}f}".rstrip("0").rstrip(".")


def gibibytes(quantity: Any) -> str:
    """`"14520Mi"` -> `"14.2 GiB"`, `"176Gi"` -> `"176 GiB"`; below one GiB in MiB."""
    amount = mebibytes(quantity)
    if 0 < amount < 1024:
        return f"{amount:.0f} MiB"
    return f"{amount / 1024:,.1f}".removesuffix(".0") + " GiB"


@dataclass(frozen=True, slots=True)
class Verdict:
    state: Literal["ready", "warning", "error"]
    words: str


def verdict(document: Document) -> Verdict:
    """What the plan comes to, in words."""
    severities = [finding.get("severity") for finding in rows(document, "findings")]
    errors, warnings = severities.count("error"), severities.count("warning")
    if errors:
        return Verdict(
            "error", f"Not ready: {count(errors, 'error')}" + (f", {count(warnings, 'warning')}" if warnings else "")
        )
    if warnings:
        return Verdict("warning", f"Ready, with {count(warnings, 'warning')}")
    return Verdict("ready", "Ready")


def findings(document: Document) -> list[Document]:
    """Worst first."""
    order = {severity: index for index, severity in enumerate(SEVERITIES)}
    return sorted(rows(document, "findings"), key=lambda finding: order.get(text(finding, "severity"), len(order)))


def made(document: Document) -> list[Document]:
    """What a provider makes; components and providers are only how it is organised."""
    return [r for r in rows(document, "resources") if r.get("custom") and not text(r, "type").startswith("pulumi:")]


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type of a pool. Its `gpus` are cut into `shares` that jobs ask for."""

    name: str
    size: str
    gpus: int
    shares: int


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    gpu: str
    gpu_memory: str
    capacity: tuple[str, ...]
    reservation: str
    least: int
    most: int
    sharing: str
    zones: tuple[str, ...]
    image: str
    instances: tuple[Instance, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the pool at its largest."""
        return self.most * max((instance.gpus for instance in self.instances), default=0)


@dataclass(frozen=True, slots=True)
class Runner:
    name: str
    pool: str
    labels: tuple[str, ...]
    gpus: int
    cpu: str
    memory: str
    jobs: str
    notes: tuple[str, ...]
    colour: int
    """Place in the palette: no two of a pool share one while the palette lasts."""


def pools(document: Document) -> list[Pool]:
    """The pools; of a plan that was saved without them, what the fit tells."""
    found = [_pool(each) for each in rows(document, "pools")]
    known = {pool.name for pool in found}
    by_pool: dict[str, dict[str, Instance]] = {}
    for fit in rows(document, "fit"):
        if text(fit, "pool") in known:
            continue
        gpus = whole(part(fit, "available"), "gpus")
        name = text(fit, "instance")
        by_pool.setdefault(text(fit, "pool"), {})[name] = Instance(name, "", gpus, gpus)
    return found + [
        Pool(name, "", "", (), "", 0, 0, "", (), "", tuple(instances.values())) for name, instances in by_pool.items()
    ]


def runners(document: Document, palette: int) -> dict[str, Runner]:
    """The runners by name, each with its colour."""
    listed = {text(each, "name"): each for each in rows(document, "runners")}
    asked = {text(each, "runner"): each for each in rows(document, "fit")}
    taken: dict[str, set[int]] = {}
    found: dict[str, Runner] = {}
    for index, name in enumerate(dict.fromkeys([*listed, *asked])):
        each, fit = listed.get(name, {}), asked.get(name, {})
        pool = text(each, "pool") or text(fit, "pool")
        used = taken.setdefault(pool, set())
        free = [(index + step) % palette for step in range(palette) if (index + step) % palette not in used]
        colour = free[0] if free else index % palette
        used.add(colour)
        request = part(fit, "request")
        found[name] = Runner(
            name=name,
            pool=pool,
            labels=tuple(texts(each, "labels")),
            gpus=whole(each, "gpus") or whole(request, "gpus"),
            cpu=cores(each.get("cpu") or request.get("cpu")),
            memory=gibibytes(each.get("memory") or request.get("memory")),
            jobs=f"{whole(each, 'min')}\u2013{whole(each, 'max')}" if "max" in each else "unknown",
            notes=tuple(_notes(each)),
            colour=colour,
        )
    return found


def _pool(each: Document) -> Pool:
    gpu, nodes = part(each, "gpu"), part(each, "nodes")
    instances = rows(each, "instances")
    memory = next((gibibytes(i["gpu_memory"]) for i in instances if i.get("gpu_memory")), "")
    return Pool(
        name=text(each, "name"),
        gpu=text(gpu, "name"),
        gpu_memory=memory,
        capacity=tuple(texts(each, "capacity")),
        reservation=text(each, "reservation"),
        least=whole(nodes, "min"),
        most=whole(nodes, "max"),
        sharing=text(each, "sharing"),
        zones=tuple(texts(each, "zones")),
        image=text(each, "image"),
        instances=tuple(
            Instance(
                name=text(i, "name"),
                size=f"{whole(i, 'vcpus')} vCPU \u00b7 {gibibytes(i.get('memory'))}",
                gpus=whole(i, "gpus"),
                shares=whole(i, "shares") or whole(i, "gpus"),
            )
            for i in instances
        ),
    )


def _notes(each: Document) -> list[str]:
    warm = [f"{whole(entry, 'min')} from {text(entry, 'at')}" for entry in rows(each, "warm")]
    container = text(each, "container", "none")
    notes = [
        f"warm: {'; '.join(warm)}" if warm else "",
        {"none": "", "dind": "Docker in the pod", "kubernetes-novolume": "job containers in pods of their own"}.get(
            container, container
        ),
        f"priority {whole(each, 'priority')}" if whole(each, "priority") else "",
        ", ".join(f"{key} at {words(mount)}" for key, mount in part(each, "volumes").items()),
    ]
    return [note for note in notes if note]
