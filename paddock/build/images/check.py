"""Judges the images of a fleet: how they are pinned, how old they are, and whether their CUDA runs on the nodes.

Pure decisions. What neither the names nor the engine say is unknown, not fine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from infra.versions import ACTIONS_RUNNER, ACTIONS_RUNNER_DIGEST, CUDA_BASES
from paddock.build.docker import Local
from paddock.build.images.image_inventory import DEFAULT, RUNNER_IMAGE, Known, day
from paddock.build.recipes import labels
from paddock.catalog import version
from paddock.catalog.cuda_match import Outcome, best_toolkit, on_driver, on_gpu, tag_cuda
from paddock.catalog.github import RUNNER_GRACE_DAYS, runner_releases, runner_successor, runners_read
from paddock.fleet import Fleet
from paddock.fleet.software import driver, image_cuda

MAX_DAYS = 21
"""Days after which an image, its base, or a runner that was followed by another, or may have been, is too old: nine are
left to act."""

Verdict = Literal["ok", "unknown", "warning", "wrong"]
_OUTCOMES: dict[Outcome, Verdict] = {
    "ok": "ok",
    "minor-version": "ok",
    "unknown": "unknown",
    "needs-compat": "wrong",
    "impossible": "wrong",
}
_BUILD = "./inv build-runner --push --pin STACK"
_PACKAGES = "./inv build-runner --build-arg PACKAGES_AS_OF=$(date +%F) --pin STACK"
"""Without another day the content is the old one, and what there is of it is taken."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One question about one image, with its answer."""

    about: Literal["pin", "runner", "image", "base", "platform", "cuda"]
    subject: str
    """The image, or the runner of the fleet that uses it."""
    verdict: Verdict
    evidence: str
    fix: str = ""

    def document(self) -> dict[str, str]:
        """JSON-ready."""
        return {
            "about": self.about,
            "subject": self.subject,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "fix": self.fix,
        }


def image(
    known: Known, nodes: Mapping[str, Sequence[str]], base: Callable[[str], Local | None], today: date
) -> Iterator[Finding]:
    """Pin, ages and platform of one image of a fleet's runners.

    `nodes` are the processors of the pools that it runs in. `base` gives the image that it was built on, if it is here.
    """
    yield _pin(known)
    yield _runner(known, today)
    if known.name != RUNNER_IMAGE:  # GitHub builds it once a release: its runner's age is its own
        yield _built(known, today)
    if known.base:
        yield _base(known, *known.base, base, today)
    yield from _platform(known, nodes)


def cuda(fleet: Fleet, images: tuple[Known, ...]) -> Iterator[Finding]:
    """Whether the CUDA of each runner's image runs on the driver and the GPUs of its pool."""
    yield from _contradiction(fleet)
    labelled = {name: known.cuda for known in images for name in known.runners}
    for name, runner in fleet.runners.items():
        stated, gpu = image_cuda(fleet, name), fleet.pools[runner.pool].gpu
        toolkit, where = stated.version or labelled.get(name), stated.where if stated.version else "the image's label"
        if toolkit is None:
            key = f"runners.{name}.image" if runner.image else "images.cuda"
            yield Finding("cuda", f"runners.{name}", "unknown", stated.where, f"{key}: what the jobs use")
            continue
        has = driver(fleet, runner.pool)
        newest = best_toolkit(has.version, gpu) if has.version else None
        match = on_gpu(toolkit, gpu)
        if match.outcome == "ok" and has.version:
            match = on_driver(toolkit, has.version, gpu)
        verdict, why = _OUTCOMES[match.outcome], match.why
        if has.version is None and verdict == "ok":
            verdict, why = "unknown", f"the driver of pool {runner.pool} is not known: {has.where}"
        fix = f"./inv build-runner --cuda {newest}, or an image with a newer driver in pools.{runner.pool}.ami"
        yield Finding(
            "cuda",
            f"runners.{name}",
            verdict,
            f"{why} (CUDA {toolkit} read from {where}, driver {has.version or 'unknown'} from {has.where})",
            fix if verdict == "wrong" and newest else "",
        )


def _contradiction(fleet: Fleet) -> Iterator[Finding]:
    shared, said = fleet.images.runner, fleet.images.cuda
    tag = tag_cuda(shared) if shared else None
    if said and tag and version(said)[:2] != version(tag)[:2]:
        evidence = f"images.cuda says {said}, the tag of images.runner {tag}"
        yield Finding("cuda", "images.cuda", "wrong", evidence, f'images.cuda: "{".".join(tag.split(".")[:2])}"')


def _pin(known: Known) -> Finding:
    where = " and ".join(known.pinned)
    if known.digest:
        return Finding("pin", known.reference, "ok", f"{where} names it by digest")
    key = where if known.pinned != (DEFAULT,) else "images.runner"
    by_digest = next((f"{known.name}:{known.tag}@{each.partition('@')[2]}" for each in known.digests), None)
    if known.reference == f"{RUNNER_IMAGE}:{ACTIONS_RUNNER}":
        by_digest = f"{known.reference}@{ACTIONS_RUNNER_DIGEST}"
    if known.tag == "latest":
        evidence = f"{where} names the tag latest, which is another image tomorrow"
        return Finding("pin", known.reference, "wrong", evidence, f'{key}: "{by_digest}"' if by_digest else _BUILD)
    evidence = f"{where} names it by tag, which a registry may move"
    return Finding("pin", known.reference, "warning", evidence, f'{key}: "{by_digest}"' if by_digest else _BUILD)


def _runner(known: Known, today: date) -> Finding:
    runner = known.runner
    if runner is None:
        evidence = "neither its tag nor a label states the version of actions/runner in it"
        return Finding("runner", known.reference, "unknown", evidence, _BUILD)
    released, successor = runner_releases().get(runner), runner_successor(runner)
    newest = max(runner_releases(), key=version)
    fix = _BUILD if runner != ACTIONS_RUNNER else f"{DEFAULT}: the newest release, then {_BUILD}"
    if released is None:
        evidence = f"the catalogue does not know runner {runner}; its newest is {newest} of {runner_releases()[newest]}"
        return Finding("runner", known.reference, "unknown", evidence, f"look at its release; {fix}")
    evidence = f"runner {runner} is {(today - released).days} days old"
    if successor:
        since = (today - successor[1]).days
        left = RUNNER_GRACE_DAYS - since
        evidence += (
            f" and was followed by {successor[0]} {since} days ago: GitHub gives it jobs for about "
            f"{RUNNER_GRACE_DAYS} days after that, {f'{left} more' if left >= 0 else f'over for {-left}'}"
        )
        return Finding("runner", known.reference, "wrong" if since > MAX_DAYS else "warning", evidence, fix)
    if (today - released).days <= MAX_DAYS:
        return Finding("runner", known.reference, "ok", evidence)
    read = max(released, runners_read())
    unseen = (today - read).days
    if unseen <= MAX_DAYS:
        return Finding("runner", known.reference, "ok", f"{evidence} and was the newest on {read}")
    evidence += (
        f"; whether another followed it is not known since {read}, {unseen} days ago: GitHub gives it jobs for about "
        f"{RUNNER_GRACE_DAYS} days after that"
    )
    looked = "if it is still the newest, the day you looked as as_of in paddock/catalog/data/github.json"
    look = f"look at github.com/actions/runner/releases: {fix}; {looked}"
    return Finding("runner", known.reference, "wrong", evidence, look)


def _built(known: Known, today: date) -> Finding:
    if known.built is None:
        evidence = "when it was built is not known: the engine of this machine does not have it"
        return Finding("image", known.reference, "unknown", evidence, f"docker pull {known.reference}")
    age = (today - known.built).days
    evidence = f"built {age} days ago, on {known.built}"
    if known.packages:
        # A build of today may take its packages from an old one.
        old = (today - known.packages).days
        age, evidence = max(age, old), f"{evidence}, with packages of {known.packages} or later, {old} days ago"
    if age > MAX_DAYS:
        evidence += ": it may lack the security updates since then"
        return Finding("image", known.reference, "wrong", evidence, _PACKAGES)
    if known.ours and not known.packages:
        evidence += f"; of which day its packages are is not known, its label {labels.PACKAGES} does not say it"
        return Finding("image", known.reference, "unknown", evidence, _PACKAGES)
    return Finding("image", known.reference, "ok", evidence)


def _platform(known: Known, nodes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Of an image that the engine has, and that a runner uses."""
    if known.architecture is None or not nodes:
        return
    evidence = f"made for linux/{known.architecture}"
    other = next((pool for pool, has in nodes.items() if set(has) != {known.architecture}), None)
    if other is None:
        yield Finding("platform", known.reference, "ok", f"{evidence}, as the nodes of {', '.join(nodes)} are")
        return
    wanted = f"linux/{next(has for has in nodes[other] if has != known.architecture)}"
    evidence += f", and the nodes of {other} are {wanted}"
    if known.ours:
        yield Finding("platform", known.reference, "wrong", evidence, _BUILD)
    else:  # a name may stand for an image of each platform, of which an engine takes its own
        evidence += "; whether its registry has one for them is not known"
        fix = f"docker pull --platform {wanted} {known.reference}"
        yield Finding("platform", known.reference, "unknown", evidence, fix)


def _base(known: Known, name: str, digest: str, get: Callable[[str], Local | None], today: date) -> Finding:
    if pinned := next((base for base in CUDA_BASES.values() if _series(base) == _series(name)), None):
        if pinned == f"{name}@{digest}":
            return Finding("base", known.reference, "ok", f"built on {name} as infra/versions.py has it")
        new, _, its = pinned.partition("@")
        evidence = f"built on {name} ({digest[:19]}), and infra/versions.py has {new} ({its[:19]})"
        return Finding("base", known.reference, "warning", evidence, _BUILD)
    local = get(f"{name}@{digest}") or get(digest)
    made = day(local.created) if local else None
    if made is None:
        evidence = f"the age of its base {name} is not known: the engine of this machine does not have it"
        return Finding("base", known.reference, "unknown", evidence, f"docker pull {name}, then build again")
    age = (today - made).days
    evidence = f"its base {name} is {age} days old, of {made}"
    if age <= MAX_DAYS:
        return Finding("base", known.reference, "ok", evidence)
    return Finding("base", known.reference, "wrong", evidence, f"a newer {name}, then build again")


def _series(base: str) -> str:
    """The name of a CUDA base without patch and digest: one of 12.8.1 takes the place of one of 12.8.0."""
    return re.sub(r":(\d+\.\d+)\.\d+-", r":\1-", base.partition("@")[0])
