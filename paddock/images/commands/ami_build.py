"""`ami.build`: a GPU machine image by the stack's pipeline, followed to its end; it can be left and taken up again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.progress import Progress, progress
from paddock.console.project import OfStack
from paddock.console.report import Report
from paddock.duration import Minutes
from paddock.errors import Interrupted
from paddock.fleet import Stack
from paddock.images.ami import images, pipeline
from paddock.images.ami.images import MachineImage
from paddock.images.ami.pipeline import BuildStep
from paddock.images.ami.watch import Failure, FinishedBuild, Pace, duration, watch, why_failed
from paddock.images.commands.ami import with_pipeline
from paddock.images.errors import BuildError, BuildInputError
from paddock.messages import explain

_LONGEST = Minutes("24h")


@dataclass(frozen=True, kw_only=True)
class BuildAmi(OfStack):
    """Parameters of `ami.build`."""

    execution: str = parameter("", "follow this build, or `latest`, instead of starting one")
    no_wait: bool = parameter(False, "start it, say how to follow it, and end")
    cancel: bool = parameter(False, "cancel the build that is in progress")
    new: bool = parameter(False, "start one next to a build in progress")
    timeout_minutes: float = parameter(Minutes("3h"), "how long to follow it; the build continues", unit=Minutes, gt=0)


class NotBuilt(BuildError):
    """A build ended without an image. `document` is the build as JSON."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


@dataclass(frozen=True, kw_only=True)
class BuildStarted(Report):
    """A build that is not followed."""

    SCHEMA = 1
    execution: str

    def text(self) -> Iterator[str]:
        yield self.execution


@dataclass(frozen=True, kw_only=True)
class BuildEnded(Report):
    """A build that has ended, with its images."""

    SCHEMA = 1
    stack: str
    region: str
    finished: FinishedBuild
    read: Mapping[str, MachineImage]
    """What the images of this region hold, as far as that could be read."""
    unread: str = ""
    failure: Failure | None = None

    @property
    def here(self) -> list[str]:
        """The images in the stack's region."""
        return [output.id for output in self.finished.build.images if output.region == self.region]

    def document(self) -> dict[str, Any]:
        build, failure = self.finished.build, self.failure
        return {
            "schema": self.SCHEMA,
            "execution": build.arn,
            "name": build.name,
            "version": build.version,
            "status": build.status,
            "reason": build.reason,
            "steps": [_step(step) for step in self.finished.steps],
            "images": [
                {"id": output.id, "region": output.region, "facts": images.facts(self.read.get(output.id))}
                for output in build.images
            ],
            **({"failed_step": failure.step.name if failure.step else None, "log": failure.log} if failure else {}),
        }

    def text(self) -> Iterator[str]:
        if self.finished.build.status == "CANCELLED":
            yield "cancelled"
            return
        for output in self.finished.build.images:
            yield f"{output.id}  {output.region}"
        for id in self.here:
            for name, fact in (images.facts(self.read.get(id)) or {}).items():
                if fact:
                    yield f"    {name}: {fact}"
            yield f"next: ./inv ami.promote {id} --stack {self.stack}"

    def notes(self) -> Iterator[str]:
        if self.unread:
            yield f"what they hold cannot be read: {self.unread}"


def _step(step: BuildStep) -> dict[str, Any]:
    return {
        "workflow": step.workflow,
        "name": step.name,
        "status": step.status,
        "seconds": step.seconds,
        "took": duration(step.seconds),
        "message": step.message,
    }


@command()
def build(parameters: BuildAmi, *, aws: Aws | None = None, pace: Pace | None = None) -> BuildStarted | BuildEnded:
    """Build a machine image and follow the build; continue one that is in progress.

    Raises BuildError and FleetError; NotBuilt where the build made no image, Interrupted at Ctrl-C.
    """
    name, execution, cancel = parameters.stack, parameters.execution, parameters.cancel
    if parameters.new and (execution or cancel):
        raise BuildInputError(
            f"--new and --{'execution' if execution else 'cancel'} do not go together\n    fix: leave one of them out"
        )
    if parameters.timeout_minutes > _LONGEST:
        raise BuildInputError(
            f"--timeout-minutes: {parameters.timeout_minutes:g}\n    expected: at most {_LONGEST:g}\n"
            "    fix: leave it out for 180; --no-wait does not follow the build at all"
        )
    stack = with_pipeline(name)
    aws = aws or Aws(stack.fleet.region)
    pace = pace or Pace(at_most_s=parameters.timeout_minutes * 60)
    with progress() as shown:
        arn = (
            _cancelled(aws, stack, execution, shown)
            if cancel
            else _chosen(aws, stack, execution, shown, new=parameters.new)
        )
        again = f"./inv ami.build --stack {name} --execution {arn}"
        ways = f"the build continues in AWS\n    resume: {again}\n    cancel: {again} --cancel"
        if parameters.no_wait:
            shown.say(ways)
            return BuildStarted(execution=arn)
        try:
            finished = watch(aws, arn, shown, pace)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {ways}") from None
        except (AwsError, BuildError) as error:
            kind = BuildInputError if error.exit_code == BuildInputError.exit_code else BuildError
            raise kind(f"{error}\n{ways}") from error
    if cancel and finished.build.status == "CANCELLED":
        return BuildEnded(stack=name, region=aws.region, finished=finished, read={})
    return _ended(aws, name, finished)


def _chosen(aws: Aws, stack: Stack, execution: str, shown: Progress, *, new: bool) -> str:
    """Return the ARN of the build to follow: the one asked for, the one in progress, or one that is started."""
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
        shown.say(builds[0].arn)
        return builds[0].arn
    if not new and (builds := pipeline.running(aws, target)):
        shown.say(builds[0].arn)
        older = f", and {len(builds) - 1} older" if len(builds) > 1 else ""
        shown.say(f"{target.name} is building {builds[0].version} already{older}: following it; --new starts another")
        return builds[0].arn
    if target.kubernetes and target.kubernetes != fleet.cluster.version:
        shown.say(
            f"{target.name} builds for Kubernetes {target.kubernetes} until pulumi up; {stack.path.name} says "
            f"{fleet.cluster.version}"
        )
    try:
        arn = pipeline.start(aws, target)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted while a build was being started; ./inv ami.build --stack {stack.name} follows it if it was"
        ) from None
    shown.say(arn)
    return arn


def _cancelled(aws: Aws, stack: Stack, execution: str, shown: Progress) -> str:
    """Return the ARN of a build whose end was asked for, now or before."""
    if execution and execution != "latest":
        arn = _chosen(aws, stack, execution, shown, new=False)
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
        shown.say(f"{build.version} was cancelled already")
        return arn
    if build.ended:
        raise BuildInputError(f"{build.version} has ended as {build.status}: there is nothing to cancel")
    pipeline.cancel(aws, arn)
    shown.say(f"{arn}\ncancelling")
    return arn


def _ended(aws: Aws, name: str, finished: FinishedBuild) -> BuildEnded:
    """Return what was built. Raises NotBuilt where nothing was."""
    build = finished.build
    if not build.built:
        failure = why_failed(aws, finished)
        first = (
            "" if build.status == "CANCELLED" else "correct that, with pulumi up where a setting or a script changed; "
        )
        fix = f"    fix: {first}./inv ami.build --stack {name} starts a new build"
        if known := explain("image-builder", failure.text, stack=name):
            fix = f"    {known.cause}\n    fix: {known.fix}; ./inv ami.build --stack {name} starts a new build"
        ended = BuildEnded(stack=name, region=aws.region, finished=finished, read={}, failure=failure)
        raise NotBuilt(f"{failure.text}\n{fix}", ended.document())
    ended = BuildEnded(stack=name, region=aws.region, finished=finished, read={})
    read, unread = dict[str, MachineImage](), ""
    try:
        read = {id: image for id in ended.here if (image := images.read(aws, id))}
    except AwsError as error:  # the images are there all the same
        unread = str(error)
    ended = BuildEnded(stack=name, region=aws.region, finished=finished, read=read, unread=unread)
    if not ended.here:
        raise NotBuilt(
            f"{build.name} {build.version} is {build.status} and left no image in {aws.region}\n"
            f"    fix: pulumi up --stack {name} sets where its images go; ./inv ami.build --stack {name} builds again",
            ended.document(),
        )
    return ended
