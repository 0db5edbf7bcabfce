"""The fleet's pipeline in EC2 Image Builder: found by its tag, started, cancelled, and what a build is doing."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.fleet import Fleet
from paddock.images.errors import BuildError, BuildInputError

FLEET_TAG = "paddock:fleet"
_ARN = re.compile(r"arn:aws[\w-]*:imagebuilder:(?P<region>[a-z0-9-]+):\d{12}:image/[a-z0-9_-]+/(?P<version>[\d.]+/\d+)")
_SERVICE = "imagebuilder"
_BUILT = {"AVAILABLE", "DEPRECATED", "DISABLED"}
_LOST = {"FAILED", "CANCELLED", "DELETED"}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An Image Builder pipeline."""

    arn: str
    name: str
    kubernetes: str
    """Minor that it builds for, of the last `pulumi up`; empty where no tag says it."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A machine image that a build left in a region."""

    region: str
    id: str


@dataclass(frozen=True, slots=True)
class Build:
    """One execution of a pipeline; Image Builder calls it an image build version."""

    arn: str
    name: str
    status: str
    """AWS's word: PENDING, CREATING, BUILDING, TESTING, DISTRIBUTING, INTEGRATING, AVAILABLE, FAILED, CANCELLED."""
    reason: str
    started: datetime | None
    images: tuple[BuiltImage, ...]
    log_group: str
    failed_step: str
    """Id of the step execution that failed; empty where Image Builder does not say."""
    failure: str
    """Image Builder's message about the failed component or distribution."""

    @property
    def version(self) -> str:
        """Version and build, `1.4.2/3`: also the name of the build's log stream."""
        return "/".join(self.arn.split("/")[-2:])

    @property
    def ended(self) -> bool:
        return self.status in _BUILT | _LOST

    @property
    def built(self) -> bool:
        return self.status in _BUILT


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One step of a build's workflows. Times are Image Builder's; None before."""

    id: str
    workflow: str
    """BUILD, TEST or DISTRIBUTION."""
    name: str
    status: str
    """PENDING, RUNNING, COMPLETED, SKIPPED, FAILED or CANCELLED."""
    message: str
    started: datetime | None
    ended: datetime | None

    @property
    def seconds(self) -> float | None:
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


def find(aws: Aws, fleet: Fleet, stack: str) -> Pipeline:
    """The pipeline with the fleet's tag. Raises BuildInputError where there is none, BuildError where there are two."""
    if not fleet.images.ami.enabled:
        raise BuildInputError(
            f"stack {stack} has no pipeline for machine images: images.ami.enabled is not set\n"
            "    expected: images: {ami: {enabled: true}} under paddock:fleet\n"
            f"    fix: write it, then pulumi up --stack {stack}"
        )
    pipelines = _tagged(aws, fleet.name)
    if len(pipelines) > 1:
        raise BuildError(
            f"there are {len(pipelines)} pipelines tagged {FLEET_TAG} = {fleet.name} in {aws.region}: "
            f"{' and '.join(pipeline.name for pipeline in pipelines)}\n"
            "    expected: one\n    fix: pulumi up, which removes one that it replaced, or remove the stray one by hand"
        )
    if not pipelines:
        raise BuildInputError(
            f"no pipeline in {aws.region} is tagged {FLEET_TAG} = {fleet.name}: it is not deployed yet, or the "
            "credentials are of another account\n"
            "    expected: the pipeline that pulumi up makes, in the account of these credentials\n"
            f"    fix: pulumi up --stack {stack}; aws sts get-caller-identity says which account it is"
        )
    return pipelines[0]


def running(aws: Aws, pipeline: Pipeline) -> tuple[Build, ...]:
    """Builds of the pipeline that have not ended, newest first."""
    return tuple(build for build in builds(aws, pipeline) if not build.ended)


def builds(aws: Aws, pipeline: Pipeline) -> tuple[Build, ...]:
    """Builds of the pipeline, newest first."""
    listed = aws.pages(_SERVICE, "list_image_pipeline_images", "imageSummaryList", imagePipelineArn=pipeline.arn)
    return tuple(sorted(map(_build, listed), key=lambda build: (str(build.started or ""), build.version), reverse=True))


def lost(aws: Aws, fleet: str) -> frozenset[str]:
    """ARNs of the fleet's builds that failed or were cancelled. Each may have left an image: tests follow on it."""
    all_builds = (build for pipeline in _tagged(aws, fleet) for build in builds(aws, pipeline))
    return frozenset(build.arn for build in all_builds if build.ended and not build.built)


def _tagged(aws: Aws, fleet: str) -> list[Pipeline]:
    # Image Builder cannot filter by tag.
    return [
        Pipeline(summary["arn"], summary["name"], tags.get("paddock:kubernetes", ""))
        for summary in aws.pages(_SERVICE, "list_image_pipelines", "imagePipelineList")
        if (tags := summary.get("tags") or {}).get(FLEET_TAG) == fleet
    ]


def start(aws: Aws, pipeline: Pipeline) -> str:
    """Starts a build and gives its ARN. The client token makes one build of a request that is sent again."""
    token = str(uuid.uuid4())
    answer = aws.ask(_SERVICE, "start_image_pipeline_execution", imagePipelineArn=pipeline.arn, clientToken=token)
    return str(answer["imageBuildVersionArn"])


def cancel(aws: Aws, arn: str) -> None:
    """Asks for the end of a build; it is cancelled some time later."""
    aws.ask(_SERVICE, "cancel_image_creation", imageBuildVersionArn=arn, clientToken=str(uuid.uuid4()))


def check_arn(arn: str, region: str) -> None:
    """Raises BuildInputError where it is not the ARN of a build, or is one of another region."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise BuildInputError(
            f"--execution: {arn[:200]!r} names no build\n"
            f"    expected: arn:aws:imagebuilder:{region}:ACCOUNT:image/NAME/VERSION/BUILD, or latest\n"
            "    fix: take it from the first line that ami.build printed, or leave it out to follow what is in progress"
        )
    if match["region"] != region:
        raise BuildInputError(
            f"--execution: the build is in {match['region']}, and the stack in {region}\n"
            "    fix: choose the stack that it was started for"
        )


def read(aws: Aws, arn: str) -> Build:
    """The build as it is now."""
    return _build(aws.ask(_SERVICE, "get_image", imageBuildVersionArn=arn)["image"])


def read_own(aws: Aws, arn: str, fleet: str) -> Build:
    """The same for a build that a user named. Raises BuildInputError where there is none that makes this fleet's."""
    try:
        image = aws.ask(_SERVICE, "get_image", imageBuildVersionArn=arn)["image"]
    except AwsError as error:
        if error.code != "ResourceNotFoundException":
            raise
        raise BuildInputError(
            f"--execution: this account does not have build {arn}\n"
            "    fix: leave it out to follow what is in progress, or latest for the newest"
        ) from None
    places = (image.get("distributionConfiguration") or {}).get("distributions") or ()
    tags = [(place.get("amiDistributionConfiguration") or {}).get("amiTags") or {} for place in places]
    if all(image_tags.get(FLEET_TAG) != fleet for image_tags in tags):
        owners = sorted({image_tags[FLEET_TAG] for image_tags in tags if FLEET_TAG in image_tags})
        raise BuildInputError(
            f"--execution: {arn} builds for {' and '.join(owners) or 'no fleet'}, not for {fleet}\n"
            "    fix: choose the stack that it was started for"
        )
    return _build(image)


def steps(aws: Aws, arn: str) -> tuple[BuildStep, ...]:
    """The steps of a build so far, in the order in which they began."""
    collected: list[BuildStep] = []
    workflows = aws.pages(_SERVICE, "list_workflow_executions", "workflowExecutions", imageBuildVersionArn=arn)
    for workflow in sorted(workflows, key=lambda workflow: str(workflow.get("startTime") or "~")):
        listed = aws.pages(
            _SERVICE, "list_workflow_step_executions", "steps", workflowExecutionId=workflow["workflowExecutionId"]
        )
        collected += [_step(step, workflow["type"]) for step in listed]
    order = {"BUILD": 0, "TEST": 1, "DISTRIBUTION": 2}
    return tuple(
        sorted(collected, key=lambda step: (order.get(step.workflow, 3), step.started is None, str(step.started)))
    )


def step_error(aws: Aws, step_id: str) -> str:
    """Return the output of a failed step: Image Builder puts the error there."""
    answer = aws.ask(_SERVICE, "get_workflow_step_execution", stepExecutionId=step_id)
    return str(answer.get("outputs") or answer.get("message") or "")


def _build(image: dict[str, Any]) -> Build:
    state = image.get("state") or {}
    context = state.get("failureContext") or {}
    component, distribution = context.get("componentFailure") or {}, context.get("distributionFailure") or {}
    where = ", ".join(
        f"{label} {component[key]}"
        for label, key in (("component", "componentArn"), ("phase", "phaseName"), ("step", "stepName"))
        if component.get(key)
    )
    messages = [component.get("errorMessage") or "", distribution.get("errorMessage") or ""]
    return Build(
        arn=image["arn"],
        name=image.get("name", ""),
        status=state.get("status", "PENDING"),
        reason=state.get("reason") or "",
        started=_time(image.get("dateCreated")),
        images=tuple(
            BuiltImage(ami["region"], ami["image"])
            for ami in (image.get("outputResources") or {}).get("amis") or ()
            if ami.get("image")
        ),
        log_group=(image.get("loggingConfiguration") or {}).get("logGroupName")
        or f"/aws/imagebuilder/{image.get('name', '')}",
        failed_step=context.get("stepExecutionId") or "",
        failure=": ".join(part for part in (where, *messages) if part),
    )


def _step(step: dict[str, Any], workflow: str) -> BuildStep:
    return BuildStep(
        id=step["stepExecutionId"],
        workflow=workflow,
        name=step.get("name", ""),
        status=step.get("status", "PENDING"),
        message=step.get("message") or "",
        started=_time(step.get("startTime")),
        ended=_time(step.get("endTime")),
    )


def _time(text: Any) -> datetime | None:
    """Image Builder's times are text: `2026-08-21T10:15:30.123Z`. None where it is not one."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
