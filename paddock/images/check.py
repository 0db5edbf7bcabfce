"""Judges the images of a fleet: how they are pinned, how old they are, and whether their CUDA runs on the nodes.

Pure decisions. What neither the names nor the engine say is unknown, not fine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from infra.versions import ACTIONS_RUNNER, ACTIONS_RUNNER_DIGEST, CUDA_BASES
from paddock.catalog import version
from paddock.catalog.cuda_match import Outcome, best_toolkit, on_driver, on_gpu, tag_cuda
from paddock.catalog.github import runner_age
from paddock.errors import PaddockError
from paddock.fleet import Fleet
from paddock.fleet.software import driver, image_cuda
from paddock.images.docker import Local
from paddock.images.image_inventory import DEFAULT, GATEWAY, RUNNER_IMAGE, ImageRecord, day
from paddock.images.recipes import labels
from paddock.images.retention import Fate, Pin, Standing

MAX_DAYS = 21
"""Days after which an image or its base is too old: it may lack the security updates since then."""

Verdict = Literal["ok", "unknown", "warning", "wrong"]
_OUTCOMES: dict[Outcome, Verdict] = {
    "ok": "ok",
    "minor-version": "ok",
    "unknown": "unknown",
    "needs-compat": "wrong",
    "impossible": "wrong",
}
_RUNNER_AGES: dict[str, Verdict] = {"followed": "warning", "refused": "wrong", "unknown": "unknown"}
_FATES: dict[Standing, Verdict] = {
    "kept": "ok",
    "near": "warning",
    "going": "wrong",
    "archived": "wrong",
    "gone": "wrong",
    "unknown": "unknown",
}
_BUILD = "./inv images.build runner --push --pin STACK"
_PACKAGES = "./inv images.build runner --build-arg PACKAGES_AS_OF=$(date +%F) --pin STACK"
"""Without another day the content is the old one, and what there is of it is taken."""
_GATEWAY = "./inv images.build gateway --pin STACK"


@dataclass(frozen=True, slots=True)
class Finding:
    """One question about one image, with its answer."""

    about: Literal["pin", "runner", "image", "base", "platform", "cuda", "registry"]
    subject: str
    """The image, or the runner of the fleet that uses it."""
    verdict: Verdict
    evidence: str
    fix: str = ""


def image(
    record: ImageRecord, nodes: Mapping[str, Sequence[str]], base: Callable[[str], Local | None], today: date
) -> Iterator[Finding]:
    """Pin, ages and platform of one image of a fleet's runners, or of its gateway.

    `nodes` are the architectures of the pools that it runs in. `base` gives the image it was built on, if it is here.
    """
    findings = _image(record, nodes, base, today)
    if record.pinned != (GATEWAY,):
        yield from findings
        return
    for finding in findings:
        day = " --build-arg PACKAGES_AS_OF=$(date +%F)" * (finding.fix == _PACKAGES)
        fix = f"{_GATEWAY}{day}" if finding.fix in (_BUILD, _PACKAGES) else finding.fix
        yield replace(finding, fix=fix)


def _image(
    record: ImageRecord, nodes: Mapping[str, Sequence[str]], base: Callable[[str], Local | None], today: date
) -> Iterator[Finding]:
    yield _pin(record)
    if record.pinned != (GATEWAY,):
        yield _runner(record, today)
    if record.name != RUNNER_IMAGE:  # GitHub builds it once a release: its runner's age is its own
        yield _built(record, today)
    if record.base:
        yield _base(record, *record.base, base, today)
    yield from _platform(record, nodes)


def cuda(fleet: Fleet, images: tuple[ImageRecord, ...]) -> Iterator[Finding]:
    """Yield whether the CUDA of each runner's image runs on the driver and the GPUs of its pool."""
    yield from _contradiction(fleet)
    labelled = {name: record.cuda for record in images for name in record.runners}
    for name, runner in fleet.runners.items():
        configured, gpu = image_cuda(fleet, runner), fleet.pools[runner.pool].gpu
        toolkit, where = (
            configured.version or labelled.get(name),
            configured.where if configured.version else "the image's label",
        )
        if toolkit is None:
            key = f"runners.{name}.image" if runner.image else "images.cuda"
            yield Finding("cuda", f"runners.{name}", "unknown", configured.where, f"{key}: what the jobs use")
            continue
        has = driver(fleet, fleet.pools[runner.pool])
        newest = best_toolkit(has.version, gpu) if has.version else None
        match = on_gpu(toolkit, gpu)
        if match.outcome == "ok" and has.version:
            match = on_driver(toolkit, has.version, gpu)
        verdict, why = _OUTCOMES[match.outcome], match.why
        if has.version is None and verdict == "ok":
            verdict, why = "unknown", f"the driver of pool {runner.pool} is not known: {has.where}"
        fix = f"./inv images.build runner --cuda {newest}, or an image with a newer driver in pools.{runner.pool}.ami"
        yield Finding(
            "cuda",
            f"runners.{name}",
            verdict,
            f"{why} (CUDA {toolkit} read from {where}, driver {has.version or 'unknown'} from {has.where})",
            fix if verdict == "wrong" and newest else "",
        )


def registry(answers: Iterable[tuple[Pin, Fate | PaddockError]]) -> Iterator[Finding]:
    """Say of each image in ECR that a stack file names whether it is there, and when a rule takes it away."""
    for pin, answer in answers:
        where = pin.where
        if isinstance(answer, PaddockError):
            sentence, *more = str(answer).splitlines()
            fix = next((line.strip().removeprefix("fix: ") for line in more if "fix: " in line), "")
            yield Finding("registry", pin.reference, "unknown", f"{where} names it: {sentence}", fix)
        else:
            yield Finding(
                "registry", pin.reference, _FATES[answer.standing], f"{where} names it: {answer.message}", answer.fix
            )


def _contradiction(fleet: Fleet) -> Iterator[Finding]:
    shared, cuda = fleet.images.runner, fleet.images.cuda
    tag = tag_cuda(shared) if shared else None
    if cuda and tag and version(cuda)[:2] != version(tag)[:2]:
        evidence = f"images.cuda says {cuda}, the tag of images.runner {tag}"
        yield Finding("cuda", "images.cuda", "wrong", evidence, f'images.cuda: "{".".join(tag.split(".")[:2])}"')


def _pin(record: ImageRecord) -> Finding:
    where = " and ".join(record.pinned)
    if record.digest:
        return Finding("pin", record.reference, "ok", f"{where} names it by digest")
    key = where if record.pinned != (DEFAULT,) else "images.runner"
    by_digest = next((f"{record.name}:{record.tag}@{digest.partition('@')[2]}" for digest in record.digests), None)
    if record.reference == f"{RUNNER_IMAGE}:{ACTIONS_RUNNER}":
        by_digest = f"{record.reference}@{ACTIONS_RUNNER_DIGEST}"
    if record.tag == "latest":
        evidence = f"{where} names the tag latest, which may be another image tomorrow"
        return Finding("pin", record.reference, "wrong", evidence, f'{key}: "{by_digest}"' if by_digest else _BUILD)
    evidence = f"{where} names it by tag, which a registry may move"
    return Finding("pin", record.reference, "warning", evidence, f'{key}: "{by_digest}"' if by_digest else _BUILD)


def _runner(record: ImageRecord, today: date) -> Finding:
    runner = record.runner
    if runner is None:
        evidence = "neither its tag nor a label states the version of actions/runner in it"
        return Finding("runner", record.reference, "unknown", evidence, _BUILD)
    age = runner_age(runner, today)
    if age.verdict == "ok":
        return Finding("runner", record.reference, "ok", age.message)
    fix = _BUILD if runner != ACTIONS_RUNNER else f"{DEFAULT}: the newest release, then {_BUILD}"
    if age.verdict == "unknown":
        otherwise = "if it is still the newest, the day you looked as as_of in paddock/catalog/data/github.json"
        fix = f"look at github.com/actions/runner/releases: {fix}; {otherwise}"
    return Finding("runner", record.reference, _RUNNER_AGES[age.verdict], age.message, fix)


def _built(record: ImageRecord, today: date) -> Finding:
    if record.built is None:
        evidence = "when it was built is not known: the engine of this machine does not have it"
        return Finding("image", record.reference, "unknown", evidence, f"docker pull {record.reference}")
    age = (today - record.built).days
    evidence = f"built {age} days ago, on {record.built}"
    if record.packages:
        # A build of today may take its packages from an old one.
        old = (today - record.packages).days
        age, evidence = max(age, old), f"{evidence}, with packages of {record.packages} or later, {old} days ago"
    if age > MAX_DAYS:
        evidence += ": it may lack the security updates since then"
        return Finding("image", record.reference, "wrong", evidence, _PACKAGES)
    if record.is_own and not record.packages:
        evidence += f"; of which day its packages are is not known, its label {labels.PACKAGES} does not say it"
        return Finding("image", record.reference, "unknown", evidence, _PACKAGES)
    return Finding("image", record.reference, "ok", evidence)


def _platform(record: ImageRecord, nodes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Check an image that the engine has and that a runner uses."""
    if record.architecture is None or not nodes:
        return
    evidence = f"made for linux/{record.architecture}"
    other = next((pool for pool, has in nodes.items() if set(has) != {record.architecture}), None)
    if other is None:
        yield Finding("platform", record.reference, "ok", f"{evidence}, as the nodes of {', '.join(nodes)} are")
        return
    required = f"linux/{next(has for has in nodes[other] if has != record.architecture)}"
    evidence += f", and the nodes of {other} are {required}"
    if record.is_own:
        yield Finding("platform", record.reference, "wrong", evidence, _BUILD)
    else:  # a name may stand for an image of each platform, of which an engine takes its own
        evidence += "; whether its registry has one for them is not known"
        fix = f"docker pull --platform {required} {record.reference}"
        yield Finding("platform", record.reference, "unknown", evidence, fix)


def _base(record: ImageRecord, name: str, digest: str, get: Callable[[str], Local | None], today: date) -> Finding:
    if pinned := next((base for base in CUDA_BASES.values() if _series(base) == _series(name)), None):
        if pinned == f"{name}@{digest}":
            return Finding("base", record.reference, "ok", f"built on {name} as infra/versions.py has it")
        new, _, its = pinned.partition("@")
        evidence = f"built on {name} ({digest[:19]}), and infra/versions.py has {new} ({its[:19]})"
        return Finding("base", record.reference, "warning", evidence, _BUILD)
    local = get(f"{name}@{digest}") or get(digest)
    created = day(local.created) if local else None
    if created is None:
        evidence = f"the age of its base {name} is not known: the engine of this machine does not have it"
        return Finding("base", record.reference, "unknown", evidence, f"docker pull {name}, then build again")
    age = (today - created).days
    evidence = f"its base {name} is {age} days old, of {created}"
    if age <= MAX_DAYS:
        return Finding("base", record.reference, "ok", evidence)
    return Finding("base", record.reference, "wrong", evidence, f"a newer {name}, then build again")


def _series(base: str) -> str:
    """The name of a CUDA base without patch and digest: one of 12.8.1 takes the place of one of 12.8.0."""
    return re.sub(r":(\d+\.\d+)\.\d+-", r":\1-", base.partition("@")[0])
