"""`slurm.configure`: detect, validate, write, build and prove."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.console.command import command
from paddock.console.output import caller_path, say
from paddock.console.parameters import Flag, Parameters, parameter
from paddock.console.project import root
from paddock.errors import Interrupted, program
from paddock.gpu import serialization
from paddock.gpu.inventory import inventory as read_inventory
from paddock.gpu.model import Inventory
from paddock.slurm.commands.diagnose import LEFT_OUT
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import Detection, detect
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.names import container_name
from paddock.slurm.validate.host import host_links
from paddock.slurm.validate.link import Link, broken
from paddock.slurm.write.node_files import node_files
from paddock.slurm.write.replacement import Change, apply, changes

if TYPE_CHECKING:
    from paddock.images.docker import Docker

_GIB = 1024


@dataclass(frozen=True, kw_only=True)
class Configure(Parameters):
    """Parameters of `slurm.configure`."""

    dry_run: bool = parameter(False, "show what would be written, and change nothing")
    rebuild: bool = parameter(False, "build the image again, without its cache")
    inventory: Path | None = parameter(
        None, "", flag=Flag("from", "a saved inventory (gpu.list --json) instead of this machine's GPUs")
    )
    prefix: str = parameter("paddock", "name of the Compose project; the container is PREFIX-slurm")
    output: Path | None = parameter(None, "folder of the files, by default PREFIX-slurm")
    shards: int = parameter(0, "jobs that may share a GPU (--gres=shard:1), 0 for none", ge=0)
    gpu_type: str = parameter("", "none: configure without GPUs, although the machine has some")
    image: str = parameter("", "use this image of Slurm, and build none")
    base: str = parameter("", "build the image on this one of the Debian family, instead of the default for the GPUs")
    files_only: bool = parameter(False, "write the files, and neither ask Docker nor build")
    diagnose: bool = parameter(False, "walk from the driver to a job's GPU, and name the first broken link")


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


@command()
def configure(parameters: Configure) -> int:
    """Configure a node on this machine, print what was done and return the exit code.

    Raises SlurmError, GpuError and BuildError. Where a link is broken nothing is written, and the exit code is 1.
    """
    _check(parameters)
    json = parameters.json
    if parameters.diagnose:
        return _diagnose(parameters)
    folder = parameters.output or caller_path(container_name(parameters.prefix))
    try:
        outcome = _configure(parameters, folder)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; steps of the image that were built stay in Docker's cache, and files that were written in"
            f" {folder}: the same command continues there"
        ) from None
    json.write(outcome.document())
    say(json, *_end(outcome, parameters))
    return 1 if outcome.broken else 0


def _diagnose(parameters: Configure) -> int:
    from paddock.images.docker import Docker
    from paddock.slurm.commands.diagnose import diagnose

    docker = Docker.find(os.environ)
    engine = Engine.parse(docker.info())
    detection = _detect(parameters, engine)
    return diagnose(detection, docker, engine, parameters.prefix, _image(parameters, detection), parameters.json)


def _image(parameters: Configure, detection: Detection) -> str:
    return parameters.image or f"paddock/slurm:{detection.gpu_type}"


def _configure(parameters: Configure, folder: Path) -> _Outcome:
    json = parameters.json
    docker = None if parameters.files_only else _docker(parameters)
    engine = Engine.parse(docker.info()) if docker else None
    detection = _detect(parameters, engine)
    image = _image(parameters, detection)
    outcome = _Outcome(detection, folder, image, dry_run=parameters.dry_run, checked=docker is not None)
    say(json, *_machine(detection))
    here = parameters.inventory is None
    if here and not parameters.files_only:
        outcome.links = host_links(detection, engine)
        say(json, *(f"  {link.line()}" for link in outcome.links))
        if outcome.broken:
            return outcome
    files = node_files(detection, parameters.prefix, image, folder, shards=parameters.shards)
    outcome.changes, outcome.warnings, outcome.gres = changes(files.files, folder), files.warnings, files.gres
    if parameters.dry_run:
        say(json, "", f"Files      {folder} (not written)", *_files(outcome.changes, diffs=True))
        return outcome
    if docker and not parameters.image:
        _build(docker, parameters, detection)
    outcome.backups = apply(outcome.changes, folder)
    (folder / "jobs").mkdir(exist_ok=True)
    say(json, "", f"Files      {folder}", *_files(outcome.changes, diffs=False))
    say(json, *(f"  {'backup':<11} {path.relative_to(folder)}" for path in outcome.backups))
    if docker and here and detection.gpu_type != "none":
        from paddock.slurm.validate.container import container_link

        outcome.links = (*outcome.links, container_link(docker, image, detection))
        say(json, f"  {outcome.links[-1].line()}")
    return outcome


def _check(parameters: Configure) -> None:
    """Raise SlurmInputError for flags that exclude each other."""
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


def _docker(parameters: Configure) -> Docker | None:
    from paddock.images.docker import Docker
    from paddock.images.errors import BuildError

    try:
        return Docker.find(os.environ)
    except BuildError as error:
        if not parameters.dry_run:
            raise
        say(parameters.json, f"note: Docker is not checked: {str(error).splitlines()[0]}")
        return None


def _detect(parameters: Configure, engine: Engine | None) -> Detection:
    if parameters.inventory is not None:
        inventory = serialization.load(parameters.inventory)
    else:
        inventory = read_inventory(programs=True, topology=True)
    if parameters.gpu_type == "none":
        inventory = _without_gpus(inventory)
    return detect(inventory, engine, saved=parameters.inventory is not None)


def _without_gpus(inventory: Inventory) -> Inventory:
    return replace(inventory, gpus=(), pairs=(), backend="none", reason=LEFT_OUT)


def _build(docker: Docker, parameters: Configure, detection: Detection) -> None:
    """Build the image unless this content was built before. Raises BuildError, or SlurmInputError in no checkout."""
    from paddock.images import slurm
    from paddock.images.docker import progress_of

    project = root()
    if not (project / "images" / slurm.NAME).is_dir():
        raise SlurmInputError(
            f"the image cannot be built: {project} is not a checkout of Paddock"
            f"\n    expected: images/{slurm.NAME} there"
            "\n    fix: run this in a checkout, or name an image that was built in one with --image"
        )
    progress = progress_of("auto", quiet=parameters.json.replaces_text)
    no_cache, base = parameters.rebuild, parameters.base
    built = slurm.build(docker, project, detection.gpu_type, base=base, no_cache=no_cache, progress=progress)
    how = f"built in {built.seconds:.0f} s" if built else "built before, unchanged"
    say(parameters.json, "", f"Image      {slurm.alias(detection.gpu_type)}: {how}")


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


def _end(outcome: _Outcome, parameters: Configure) -> Iterable[str]:
    yield from (f"warning: {warning}" for warning in outcome.warnings)
    if link := outcome.broken:
        yield from ("", f"Docker cannot pass the GPUs to a container: {link.name}: {link.evidence}")
        yield f"  fix: {link.fix}"
        yield f"  or without GPUs: {program()} slurm.configure --gpu-type none"
        return
    if outcome.dry_run:
        return
    detection = outcome.detection
    gpus = f"{len(detection.contained.gpus)} {detection.gpu_type} GPUs ({outcome.gres})" if outcome.gres else "no GPUs"
    resources = f"{detection.cpus} CPUs, {detection.memory_mib / _GIB:.1f} GiB, {gpus}"
    if not outcome.checked:
        yield from ("", f"The files are written, for {resources}. The image {outcome.image} was not looked for.")
        yield f"build it: {program()} slurm.configure, without --files-only"
        return
    yield from ("", f"Slurm is configured: {resources}")
    yield f"start it: docker compose --file {outcome.folder / 'compose.yaml'} up --detach"
    prefix = "" if parameters.prefix == "paddock" else f" --prefix {parameters.prefix}"
    yield f"test it:  {program()} slurm.test{prefix}"
