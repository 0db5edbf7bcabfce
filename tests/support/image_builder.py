"""Answers of EC2 Image Builder and CloudWatch Logs in place of an account, checked against the services' own models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import boto3
from botocore.stub import ANY, Stubber

from paddock.aws.client import Aws

REGION = "us-west-2"
_ACCOUNT = f"arn:aws:imagebuilder:{REGION}:123456789012"
PIPELINE = f"{_ACCOUNT}:image-pipeline/gpu-ami-1a2b3c4"
BUILD = f"{_ACCOUNT}:image/gpu-ami-recipe-5d6e7f8/1.4.2/1"
AMI = "ami-0123456789abcdef0"
STARTED = "2026-08-21T10:00:00.000Z"

Workflow = tuple[str, Sequence[dict[str, Any]]]
"""BUILD, TEST or DISTRIBUTION, and its steps."""


def step(name: str, status: str, started: str = "", ended: str = "", message: str = "") -> dict[str, Any]:
    """A step as Image Builder lists it; `started` and `ended` are minutes and seconds after ten o'clock."""
    number = sum(map(ord, name))
    times = {"startTime": started, "endTime": ended}
    return {
        "stepExecutionId": f"step-00000000-0000-0000-0000-{number:012}",
        "name": name,
        "status": status,
        "message": message,
        **{key: f"2026-08-21T10:{at}.000Z" for key, at in times.items() if at},
    }


def image(status: str, arn: str = BUILD, **more: Any) -> dict[str, Any]:
    """A build as `GetImage` returns it; the parts that a list has too are the same."""
    state = {"status": status, **more.pop("state", {})}
    summary = {"arn": arn, "name": "gpu-ami-recipe-5d6e7f8", "version": "1.4.2", "state": state, "dateCreated": STARTED}
    return summary | more


def pipeline(fleet: str = "paddock-dev", arn: str = PIPELINE, **tags: str) -> dict[str, Any]:
    tags = {f"paddock:{name}": value for name, value in ({"fleet": fleet} | tags).items()}
    return {"arn": arn, "name": arn.rpartition("/")[2], "tags": tags}


@functools.cache
def _client(service: str) -> Any:
    return boto3.client(service, region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none")


class _Recorder:
    """A value that equals anything and records it."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        self.values.append(str(other))
        return True

    __hash__ = None  # type: ignore[assignment]  # what equals anything has no hash


class Account:
    """Requests that AWS will get, in order for each service, with their answers. Any other request fails the test."""

    def __init__(self) -> None:
        self._clients = {name: _client(name) for name in ("imagebuilder", "logs", "ec2")}
        self._stubs = {name: Stubber(client) for name, client in self._clients.items()}
        for stub in self._stubs.values():
            stub.activate()
        self.tokens: list[str] = []
        """Client tokens of the builds that were started."""

    @property
    def aws(self) -> Aws:
        return Aws(REGION, lambda service, _: self._clients[service])

    def assert_all_requested(self) -> None:
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()

    def close(self) -> None:
        for stub in self._stubs.values():
            stub.deactivate()

    def pipelines(self, *pages: Sequence[dict[str, Any]]) -> None:
        for number, page in enumerate(pages):
            more = {"nextToken": f"page-{number + 1}"} if number + 1 < len(pages) else {}
            parameters = {"nextToken": f"page-{number}"} if number else {}
            self._answer("list_image_pipelines", {"imagePipelineList": list(page), **more}, parameters)

    def builds(self, *images: dict[str, Any]) -> None:
        self._answer("list_image_pipeline_images", {"imageSummaryList": list(images)}, {"imagePipelineArn": PIPELINE})

    def start(self, arn: str = BUILD) -> None:
        parameters = {"imagePipelineArn": PIPELINE, "clientToken": _Recorder(self.tokens)}
        self._answer("start_image_pipeline_execution", {"imageBuildVersionArn": arn}, parameters)

    def cancel(self) -> None:
        parameters = {"imageBuildVersionArn": BUILD, "clientToken": ANY}
        self._answer("cancel_image_creation", {"imageBuildVersionArn": BUILD}, parameters)

    def get(self, status: str, **more: Any) -> None:
        self._answer("get_image", {"image": image(status, **more)}, {"imageBuildVersionArn": BUILD})

    def get_named(self, status: str, fleet: str = "paddock-dev") -> None:
        """Answer the request for a build that a user named, with the fleet it belongs to."""
        place = {"region": REGION, "amiDistributionConfiguration": {"amiTags": {"paddock:fleet": fleet}}}
        self.get(status, distributionConfiguration={"timeoutMinutes": 60, "distributions": [place]})

    def poll(self, status: str, *workflows: Workflow, **more: Any) -> None:
        """Add the answers to one poll of a build: itself, its workflows, and the steps of each."""
        self.get(status, **more)
        listed = [
            {"workflowExecutionId": f"wf-00000000-0000-0000-0000-{number:012}", "type": kind, "status": "RUNNING"}
            for number, (kind, _) in enumerate(workflows)
        ]
        parameters = {"imageBuildVersionArn": BUILD}
        self._answer("list_workflow_executions", {"workflowExecutions": listed}, parameters)
        for workflow, (_, steps) in zip(listed, workflows, strict=True):
            parameters = {"workflowExecutionId": workflow["workflowExecutionId"]}
            self._answer("list_workflow_step_executions", {"steps": list(steps)}, parameters)

    def refuse(self, operation: str, code: str, message: str = "no", service: str = "imagebuilder") -> None:
        self._stubs[service].add_client_error(operation, code, message)

    def step_outputs(self, failed: dict[str, Any], text: str) -> None:
        parameters = {"stepExecutionId": failed["stepExecutionId"]}
        self._answer("get_workflow_step_execution", {"outputs": text}, parameters)

    def log(self, *messages: str) -> None:
        parameters = {
            "logGroupName": "/aws/imagebuilder/gpu-ami-recipe-5d6e7f8",
            "logStreamName": "1.4.2/1",
            "limit": ANY,
            "startFromHead": False,
        }
        self._answer("get_log_events", {"events": [{"message": message} for message in messages]}, parameters, "logs")

    def ami(self, **tags: str) -> None:
        """EC2's description of the image that was built."""
        description = {
            "ImageId": AMI,
            "State": "available",
            "CreationDate": "2026-08-21T10:40:00.000Z",
            "Tags": [{"Key": f"paddock:{key}", "Value": value} for key, value in tags.items()],
        }
        parameters = {
            "Filters": [{"Name": "image-id", "Values": [AMI]}],
            "IncludeDeprecated": True,
            "IncludeDisabled": True,
        }
        self._answer("describe_images", {"Images": [description]}, parameters, "ec2")

    def _answer(self, operation: str, answer: dict[str, Any], parameters: Any, service: str = "imagebuilder") -> None:
        self._stubs[service].add_response(operation, answer, parameters)
