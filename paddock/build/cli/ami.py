"""Implementations of `inv ami.build` and `inv ami.*`, without Invoke."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddock.build.ami import images, pipeline, promote, prune, text, usage
from paddock.build.ami.images import MachineImage
from paddock.build.ami.progress import ProgressReporter
from paddock.build.ami.watch import FinishedBuild, Pace, watch, why_failed
from paddock.build.aws import Aws
from paddock.build.errors import BuildError, BuildInputError
from paddock.errors import Interrupted
from paddock.fleet import Stack, load
from paddock.fleet.stackfile.loader import stack_names
from paddock.terminal import NO_JSON, JsonOutput, json_errors


class NotBuilt(BuildError):
    """A build ended without an image. `document` is the build as JSON."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


@json_errors
def build(
    root: Path,
    name: str,
    *,
    execution: str = "",
    wait: bool = True,
    cancel: bool = False,
    new: bool = False,
    timeout_minutes: float = 180.0,
    json: JsonOutput = NO_JSON,
    aws: Aws | None = None,
    pace: Pace | None = None,
) -> None:
    """Builds a machine image with the stack's pipeline and follows it; goes on with a build that is in progress.

    `execution` is the ARN of a build, or `latest`; `new` starts one beside a build in progress. Raises BuildError and
    FleetError; NotBuilt where the build made no image, Interrupted at Ctrl-C.
    """
    if new and (execution or cancel):
        raise BuildInputError(
            f"--new and --{'execution' if execution else 'cancel'} do not go together\n    fix: leave one of them out"
        )
    if not 0 < timeout_minutes <= 24 * 60:
        raise BuildInputError(
            f"--timeout-minutes: {timeout_minutes:g}\n    expected: more than 0, at most 1440\n"
            "    fix: leave it out for 180; --no-wait does not follow the build at all"
        )
    stack = _with_pipeline(root, name)
    aws = aws or Aws(stack.fleet.region)
    pace = pace or Pace(at_most_s=timeout_minutes * 60)
    with ProgressReporter() as reporter:
        arn = _cancelled(aws, stack, execution, reporter) if cancel else _chosen(aws, stack, execution, new, reporter)
        ways = _ways_on(name, arn)
        if not wait:
            json.write({"execution": arn})
            sys.stdout.write("" if json.replaces_text else f"{arn}\n")
            reporter.say(ways)
            return
        try:
            finished = watch(aws, arn, reporter, pace)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {ways}") from None
        except BuildError as error:
            error_class = BuildInputError if isinstance(error, BuildInputError) else BuildError
            raise error_class(f"{error}\n{ways}") from error
    if cancel and finished.build.status == "CANCELLED":
        json.write(text.build_document(finished, {}, None))
        sys.stdout.write("" if json.replaces_text else "cancelled\n")
    else:
        _finish(aws, name, finished, json)


@json_errors
def list_images(root: Path, name: str, *, json: JsonOutput = NO_JSON, aws: Aws | None = None) -> None:
    """The fleet's machine images, newest first, with what uses them. Raises BuildError and FleetError."""
    stack = load(root, name)
    aws = aws or Aws(stack.fleet.region)
    fleet = _maker(root, stack)
    own = images.of_fleet(images.owned(aws), fleet, pipeline.lost(aws, fleet))
    try:
        in_use, unknown = usage.used(aws, {image.id for image in own}, root), ""
    except BuildError as error:
        in_use, unknown = None, str(error)
    listed = [text.image_document(image, in_use, aws.region) for image in own]
    json.write({"region": aws.region, "images": listed, "uses_unknown": unknown or None})
    if json.replaces_text:
        return
    if not own:
        sys.stdout.write(f"no machine images of {fleet} in {aws.region}; ./inv ami.build --stack {name} makes one\n")
    else:
        text.show_images(own, in_use, aws.region)
        sys.stdout.write(f"what uses them is not known: {unknown}\n" if unknown else "")


@json_errors
def promote_image(
    root: Path, name: str, id: str, *, pools: Sequence[str] = (), json: JsonOutput = NO_JSON, aws: Aws | None = None
) -> None:
    """Pins a machine image in the stack file, for `pools` or for every pool that is not Bottlerocket's.

    Raises BuildError and FleetError, the file untouched, unless everything fits.
    """
    stack = load(root, name)
    chosen = promote.pools(stack, pools)
    aws = aws or Aws(stack.fleet.region)
    image, pin = promote.usable(aws, stack, id, _maker(root, stack))
    decided = promote.decide(stack, image, pin, chosen)
    if decided.refused:
        listed = "\n".join(f"    {fit.subject}: {fit.text}" for fit in decided.refused)
        raise BuildError(
            f"{id} does not fit {stack.path.name}, which stays as it is:\n{listed}\n"
            "    fix: choose the pools that it fits with --pool, or build an image that fits all"
        )
    promote.write(stack, pin, decided.changing)
    json.write(promote.document(stack, image, decided))
    if json.replaces_text:
        return
    text.show_fits(decided.fits)
    if not decided.changing:
        sys.stdout.write(f"{stack.path.name} names {id} already for {', '.join(chosen)}\n")
        return
    sys.stdout.write(promote.outlook(stack, pin, decided.changing))


@json_errors
def prune_images(
    root: Path,
    name: str,
    *,
    keep: int = 2,
    named: Sequence[str] = (),
    yes: bool = False,
    json: JsonOutput = NO_JSON,
    aws: Aws | None = None,
) -> bool:
    """Removes the fleet's machine images that nothing uses, with `yes`; else says what would go.

    False where AWS refused to remove something. Raises BuildError and FleetError.
    """
    if keep < 0:
        raise BuildInputError(
            f"--keep: {keep}\n    expected: how many of the newest images stay, 0 or more\n    fix: leave it out for 2"
        )
    stack = _with_pipeline(root, name)
    fleet, aws = stack.fleet.name, aws or Aws(stack.fleet.region)
    # Before the images: one that comes meanwhile with its snapshots is not yet among these.
    snapshots = images.made_for_images(aws, fleet)
    owned = images.owned(aws)
    own = images.of_fleet(owned, fleet, pipeline.lost(aws, fleet))
    _check_named(named, own, stack)
    in_use = usage.used(aws, {image.id for image in own}, root)
    # EC2 refuses to say it of an image that failed or is not ready, and nobody can launch those.
    shareable = [image.id for image in own if image.id not in in_use and image.state == "available" and not named]
    shared = {id: images.shared_with(aws, id) for id in shareable}
    removal = prune.decide(own, owned, snapshots, in_use, shared, keep, named)
    removed = prune.carry_out(aws, fleet, removal) if yes else None
    json.write(text.removal_document(removal, aws.region, removed))
    if not json.replaces_text:
        text.show_removal(removal, aws.region, removed)
    if removed is None or not removed.failed:
        return True
    for id, why in removed.failed.items():
        sys.stderr.write(f"{id} stays: {why}\n")
    sys.stderr.write("the next ami.prune goes on from here\n")
    return False


def _chosen(aws: Aws, stack: Stack, execution: str, new: bool, reporter: ProgressReporter) -> str:
    """The ARN of the build to follow: the one asked for, the one in progress, or one that is started."""
    fleet = stack.fleet
    if execution and execution != "latest":
        pipeline.check_arn(execution, fleet.region)
        return pipeline.read_own(aws, execution, fleet.name).arn
    target = pipeline.find(aws, fleet, stack.name)
    if execution:
        builds = pipeline.builds(aws, target)
        if not builds:
            raise BuildInputError(
                f"{target.name} has not built anything yet\n"
                f"    fix: ./inv ami.build --stack {stack.name} starts a build"
            )
        reporter.say(builds[0].arn)
        return builds[0].arn
    if not new and (builds := pipeline.running(aws, target)):
        reporter.say(builds[0].arn)
        older = f", and {len(builds) - 1} older" if len(builds) > 1 else ""
        reporter.say(
            f"{target.name} is building {builds[0].version} already{older}: following it; --new starts another"
        )
        return builds[0].arn
    try:
        arn = pipeline.start(aws, target)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted while a build was being started; ./inv ami.build --stack {stack.name} follows it if it was"
        ) from None
    reporter.say(arn)
    return arn


def _cancelled(aws: Aws, stack: Stack, execution: str, reporter: ProgressReporter) -> str:
    """The ARN of a build whose end was asked for, now or before."""
    if execution and execution != "latest":
        arn = _chosen(aws, stack, execution, new=False, reporter=reporter)
    else:
        target = pipeline.find(aws, stack.fleet, stack.name)
        builds = pipeline.running(aws, target)
        if len(builds) != 1:
            listed = "".join(f"\n    --execution {build.arn}" for build in builds)
            raise BuildInputError(
                f"{target.name} has {len(builds) or 'no'} builds in progress"
                + (f"\n    fix: name one{listed}" if builds else ": there is nothing to cancel")
            )
        arn = builds[0].arn
    build = pipeline.read(aws, arn)
    if build.status == "CANCELLED":
        reporter.say(f"{build.version} was cancelled already")
        return arn
    if build.ended:
        raise BuildInputError(f"{build.version} has ended as {build.status}: there is nothing to cancel")
    pipeline.cancel(aws, arn)
    reporter.say(f"{arn}\ncancelling")
    return arn


def _finish(aws: Aws, name: str, finished: FinishedBuild, json: JsonOutput) -> None:
    """Says what was built. Raises NotBuilt where nothing was."""
    build = finished.build
    if not build.built:
        failure = why_failed(aws, finished)
        mend = "" if build.status == "CANCELLED" else "mend that, with pulumi up where a setting or a script changed; "
        fix = f"    fix: {mend}./inv ami.build --stack {name} starts a new build"
        raise NotBuilt(f"{failure.text}\n{fix}", text.build_document(finished, {}, failure))
    here = [output.id for output in build.images if output.region == aws.region]
    read, unread = dict[str, MachineImage](), ""
    try:
        read = {id: image for id in here if (image := images.read(aws, id))}
    except BuildError as error:  # the images are there all the same
        unread = f"what they hold cannot be read: {error}\n"
    document = text.build_document(finished, read, None)
    if not here:
        raise NotBuilt(
            f"{build.name} {build.version} is {build.status} and left no image in {aws.region}\n"
            f"    fix: pulumi up --stack {name} sets where its images go; ./inv ami.build --stack {name} builds again",
            document,
        )
    json.write(document)
    if json.replaces_text:
        return
    for output in build.images:
        sys.stdout.write(f"{output.id}  {output.region}\n")
    for id in here:
        image_facts = text.facts(read[id]) if id in read else {}
        listed = "".join(f"    {key}: {value}\n" for key, value in image_facts.items() if value)
        sys.stdout.write(f"{listed}next: ./inv ami.promote {id} --stack {name}\n")
    sys.stderr.write(unread)


def _with_pipeline(root: Path, name: str) -> Stack:
    """The stack, which must hold the images itself."""
    stack = load(root, name)
    holder = stack.fleet.layers.images
    if not stack.fleet.holds("images"):
        fix = (
            "paddock:layers: {images: here}"
            if holder == "none"
            else f"the same command with --stack {holder.split('/')[-1]}"
        )
        raise BuildInputError(f"stack {name} makes no images: paddock:layers says images: {holder}\n    fix: {fix}")
    return stack


def _maker(root: Path, stack: Stack) -> str:
    """The fleet under whose name the stack's images are built: its own, or that of the stack which holds them."""
    holder = stack.fleet.layers.images
    if stack.fleet.holds("images") or holder == "none":
        return stack.fleet.name
    other = holder.split("/")[-1]
    if other in stack_names(root):
        return load(root, other).fleet.name
    raise BuildInputError(
        f"the images of stack {stack.name} are made by {holder}, and there is no Pulumi.{other}.yaml here\n"
        "    fix: run it where that stack's file is, or bring the file here"
    )


def _check_named(named: Sequence[str], own: Sequence[MachineImage], stack: Stack) -> None:
    for id in named:
        if id not in {image.id for image in own}:
            raise BuildInputError(
                f"--image: {id[:100]!r} is no image of {stack.fleet.name} in {stack.fleet.region}\n"
                f"    expected: one of {', '.join(image.id for image in own) or 'none: there are no images'}\n"
                f"    fix: take one that ./inv ami.list --stack {stack.name} shows, or leave --image out"
            )


def _ways_on(name: str, arn: str) -> str:
    command = f"./inv ami.build --stack {name} --execution {arn}"
    return f"the build goes on in AWS\n    resume: {command}\n    cancel: {command} --cancel"
