"""`configure`: detect, validate, write, build and prove."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import Interrupted, printable, program
from paddock.gpu import serialization
from paddock.gpu.inventory import inventory as read_inventory
from paddock.gpu.model import Inventory
from paddock.slurm.cli.parameters import LEFT_OUT, Configure
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import Detection, detect
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.names import container_name
from paddock.slurm.validate.host import host_links
from paddock.slurm.validate.link import Link, broken
from paddock.slurm.write.node_files import node_files
from paddock.slurm.write.replacement import Change, apply, changes
from paddock.terminal import JsonOutput, caller_path, json_errors

if TYPE_CHECKING:
    from paddock.build.docker import Docker

_GIB = 1024


@dataclass(slots=True)
class _Outcome:
    """State of a run; the JSON document and the exit code follow from it."""

    detection: Detection
    folder: Path
    image: str
    links: tuple[Link, ...] = ()
    changes: tuple[Change, ...] = ()
    backups: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    gres: str = ""
    dry_run: bool = False
    checked: bool = True
    """False where Docker was not asked: the image may not be there."""

    @property
    def broken(self) -> Link | None:
        return broken(self.links)

    def document(self) -> dict[str, Any]:
        detection = self.detection
        return {
            "schema": 1,
            "platform": detection.platform,
            "gpu_type": detection.gpu_type,
            "gpus": [{"uuid": gpu.uuid, "name": gpu.name} for gpu in detection.contained.gpus],
            "cpus": detection.cpus,
            "memory_mib": detection.memory_mib,
            "gres": self.gres or None,
            "image": self.image,
            "folder": str(self.folder),
            "dry_run": self.dry_run,
            "links": [link.document() for link in self.links],
            "files": [
                {"path": change.file.path, "state": change.state, "diff": list(change.diff)} for change in self.changes
            ],
            "backups": [str(path) for path in self.backups],
            "notes": [*detection.notes, *self.warnings],
            "ready": self.checked and self.broken is None and not self.dry_run,
        }


def configure(root: Path, flags: Mapping[str, Any]) -> int:
    """Configure a node on this machine, print what was done and return the exit code.

    Raises SlurmError, GpuError and BuildError. Where a link is broken nothing is written, and the exit code is 1.
    """
    parameters = Configure.from_flags(flags)
    return _run(root, parameters, json=JsonOutput.parse(parameters.json))


@json_errors
def _run(root: Path, parameters: Configure, *, json: JsonOutput) -> int:
    _check(parameters)
    if parameters.diagnose:
        return _diagnose(parameters, json)
    say = _Say(quiet=json.replaces_text)
    folder = caller_path(str(parameters.output or container_name(parameters.prefix)))
    try:
        outcome = _configure(root, parameters, folder, say)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; steps of the image that were built stay in Docker's cache, and files that were written in"
            f" {folder}: the same command goes on from there"
        ) from None
    json.write(outcome.document())
    _end(outcome, parameters, say)
    return 1 if outcome.broken else 0


class _Say:
    """Lines of progress on standard output, as they become true."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, *lines: str) -> None:
        if not self.quiet:
            sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
            sys.stdout.flush()


def _diagnose(parameters: Configure, json: JsonOutput) -> int:
    from paddock.build.docker import Docker
    from paddock.slurm.cli.diagnose import diagnose

    docker = Docker.find(os.environ)
    engine = Engine.parse(docker.info())
    detection = _detect(parameters, engine)
    return diagnose(detection, docker, engine, parameters.prefix, _image(parameters, detection), json)


def _image(parameters: Configure, detection: Detection) -> str:
    return parameters.image or f"paddock/slurm:{detection.gpu_type}"


def _configure(root: Path, parameters: Configure, folder: Path, say: _Say) -> _Outcome:
    docker = None if parameters.files_only else _docker(optional=parameters.dry_run, say=say)
    engine = Engine.parse(docker.info()) if docker else None
    detection = _detect(parameters, engine)
    image = _image(parameters, detection)
    outcome = _Outcome(detection, folder, image, dry_run=parameters.dry_run, checked=docker is not None)
    say(*_machine(detection))
    here = parameters.inventory is None
    if here and not parameters.files_only:
        outcome.links = host_links(detection, engine)
        say(*(f"  {link.line()}" for link in outcome.links))
        if outcome.broken:
            return outcome
    files = node_files(detection, parameters.prefix, image, folder, shards=parameters.shards)
    outcome.changes, outcome.warnings, outcome.gres = changes(files.files, folder), files.warnings, files.gres
    if parameters.dry_run:
        say("", f"Files      {folder} (not written)", *_files(outcome.changes, diffs=True))
        return outcome
    if docker and not parameters.image:
        _build(docker, root, parameters, detection, say)
    outcome.backups = apply(outcome.changes, folder)
    (folder / "jobs").mkdir(exist_ok=True)
    say("", f"Files      {folder}", *_files(outcome.changes, diffs=False))
    say(*(f"  {'backup':<11} {path.relative_to(folder)}" for path in outcome.backups))
    if docker and here and detection.gpu_type != "none":
        from paddock.slurm.validate.container import container_link

        outcome.links = (*outcome.links, container_link(docker, image, detection))
        say(f"  {outcome.links[-1].line()}")
    return outcome


def _check(parameters: Configure) -> None:
    """Raise SlurmInputError for flags that make no sense together."""
    if parameters.gpu_type not in ("", "none"):
        raise SlurmInputError(
            f"--gpu-type {parameters.gpu_type!r}\n    expected: none, or nothing: the type is detected"
            "\n    fix: leave --gpu-type out; --from gives another machine's GPUs"
        )
    if parameters.shards < 0 or parameters.shards == 1:
        raise SlurmInputError(
            f"--shards {parameters.shards}\n    expected: 2 or more, or 0: one shard is the whole GPU"
        )
    if parameters.files_only and (parameters.rebuild or parameters.base):
        raise SlurmInputError(
            "--files-only builds no image\n    expected: --files-only without --rebuild and --base"
            "\n    fix: leave one of them out"
        )
    if parameters.image and (parameters.rebuild or parameters.base):
        raise SlurmInputError(
            "--image names an image that is there already\n    expected: --image without --rebuild and --base"
            "\n    fix: leave one of them out"
        )


def _docker(*, optional: bool, say: _Say) -> Docker | None:
    from paddock.build.docker import Docker
    from paddock.build.errors import BuildError

    try:
        return Docker.find(os.environ)
    except BuildError as error:
        if not optional:
            raise
        say(f"note: Docker is not checked: {str(error).splitlines()[0]}")
        return None


def _detect(parameters: Configure, engine: Engine | None) -> Detection:
    if parameters.inventory is not None:
        inventory = serialization.load(caller_path(str(parameters.inventory)))
    else:
        inventory = read_inventory(programs=True, topology=True)
    if parameters.gpu_type == "none":
        inventory = _without_gpus(inventory)
    return detect(inventory, engine, saved=parameters.inventory is not None)


def _without_gpus(inventory: Inventory) -> Inventory:
    return replace(inventory, gpus=(), pairs=(), backend="none", reason=LEFT_OUT)


def _build(docker: Docker, root: Path, parameters: Configure, detection: Detection, say: _Say) -> None:
    """Build the image unless this content was built before. Raises BuildError, or SlurmInputError in no checkout."""
    from paddock.build.docker import progress_of
    from paddock.build.images import slurm

    if not (root / "images" / slurm.NAME).is_dir():
        raise SlurmInputError(
            f"the image cannot be built: {root} is no checkout of Paddock\n    expected: images/{slurm.NAME} there"
            "\n    fix: run this in a checkout, or name an image that was built in one with --image"
        )
    progress = progress_of("auto", quiet=say.quiet)
    no_cache, base = parameters.rebuild, parameters.base
    built = slurm.build(docker, root, detection.gpu_type, base=base, no_cache=no_cache, progress=progress)
    how = f"built in {built.seconds:.0f} s" if built else "built before, unchanged"
    say("", f"Image      {slurm.alias(detection.gpu_type)}: {how}")


def _machine(detection: Detection) -> Iterable[str]:
    inventory = detection.inventory
    yield f"Machine    {inventory.machine.name}: {detection.platform}, {inventory.machine.architecture}"
    models = Counter((gpu.name or "unknown model", gpu.memory.total if gpu.memory else None) for gpu in inventory.gpus)
    driver = f", driver {inventory.driver.version}" if inventory.driver else ""
    for (name, mib), count in models.items():
        yield f"GPUs       {count}x {name}{f', {mib} MiB each' if mib else ''}{driver}"
    if not models:
        yield f"GPUs       none: {inventory.reason or 'the inventory has none'}"
    yield f"Resources  {detection.cpus} CPUs, {detection.memory_mib / _GIB:.1f} GiB of memory ({detection.source})"
    yield from (f"note: {note}" for note in detection.notes)


_STATES = {
    "new": "new",
    "unchanged": "unchanged",
    "updated": "updated",
    "edited": "replaced, and the version that was edited by hand kept",
    "foreign": "replaced, and the file that was there kept",
    "customised": "customised: left as it is; it differs from what is generated",
}


def _files(all_changes: Iterable[Change], *, diffs: bool) -> Iterable[str]:
    for change in all_changes:
        yield f"  {change.file.path:<15} {_STATES[change.state]}"
        if change.diff and (diffs or change.state in ("customised", "edited")):
            yield from (f"      {line}" for line in change.diff)


def _end(outcome: _Outcome, parameters: Configure, say: _Say) -> None:
    say(*(f"warning: {warning}" for warning in outcome.warnings))
    if link := outcome.broken:
        say("", f"Docker cannot pass the GPUs to a container: {link.name}: {link.evidence}", f"  fix: {link.fix}")
        say(f"  or without GPUs: {program()} configure --gpu-type none")
        return
    if outcome.dry_run:
        return
    detection = outcome.detection
    gpus = f"{len(detection.contained.gpus)} {detection.gpu_type} GPUs ({outcome.gres})" if outcome.gres else "no GPUs"
    resources = f"{detection.cpus} CPUs, {detection.memory_mib / _GIB:.1f} GiB, {gpus}"
    if not outcome.checked:
        say("", f"The files are written, for {resources}. The image {outcome.image} was not looked for.")
        say(f"build it: {program()} configure, without --files-only")
        return
    say("", f"Slurm is configured: {resources}")
    say(f"start it: docker compose --file {outcome.folder / 'compose.yaml'} up --detach")
    prefix = "" if parameters.prefix == "paddock" else f" --prefix {parameters.prefix}"
    say(f"test it:  {program()} slurm.test{prefix}")
