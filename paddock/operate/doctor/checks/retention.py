"""Images in ECR that stack files and running pods name: whether a lifecycle rule is about to take one away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from paddock.errors import PaddockError
from paddock.images import retention
from paddock.images.retention import Fate, Pin
from paddock.operate.doctor.checks import software
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result, Status
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import NotFound, Unavailable, split_error

SUBJECT = "images that are named"
_result = partial(Result, area="software")
_STATUS: dict[str, Status] = {"near": "warn", "unknown": "unknown"}


def images(context: Context) -> Iterator[Result]:
    """Check every pin of the folder's stack files, and what pods run now, against the rules of its repository."""
    named, unread = pods(context)
    aws, kept = context.aws, 0
    now = aws.clock or datetime.now(UTC)
    said = software.runner_images(context) if context.fleet.holds("runners") else {}
    for pin, answer in retention.fates([*retention.pins(context.root), *named], aws.pages, aws.read, now):
        subject = pin.where
        if isinstance(answer, Fate) and answer.standing == "kept":
            kept += 1
        elif pin.reference in said and _is_said(answer):
            continue
        elif isinstance(answer, Fate):
            status = _STATUS.get(answer.standing, "fail")
            yield _result(status=status, subject=subject, message=f"{pin.reference}: {answer.message}", fix=answer.fix)
        else:
            permission = answer.permission if isinstance(answer, Unavailable) else ""
            fix = split_error(answer)[1] or (f"allow {permission}" if permission else "")
            message = f"{pin.reference}: {str(answer).splitlines()[0]}"
            yield _result(status="unknown", subject=subject, message=message, fix=fix, permission=permission)
    if kept:
        read = "; running pods were not read" if unread else ""
        message = f"{kept} stay in ECR, by the rules of their repositories{read}"
        yield _result(status="pass", subject=SUBJECT, message=message)


def _is_said(answer: Fate | PaddockError) -> bool:
    """Return whether the check of the runner's image, which asks ECR for it, has said the same."""
    if isinstance(answer, Fate):
        return answer.standing == "gone"
    return isinstance(answer, NotFound) or getattr(answer, "permission", "") == "ecr:DescribeImages"


def pods(context: Context) -> tuple[tuple[Pin, ...], bool]:
    """Return the images of this account's ECR that containers run, and whether that is not known.

    A cluster that is not there yet, or that nobody here may enter, is not a mistake.
    """
    try:
        cluster = kubeconfig.load(None, None, context.fleet)
        if not cluster.named:
            return (), True
        running = KubernetesReader(cluster, patience=2).all("v1", "Pod")
    except PaddockError:
        return (), True
    named = [
        (str(status.get("imageID", "")), f"pod {pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}")
        for pod in running
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    own = context.identity().account
    return tuple(pin for pin in retention.found(named) if pin.repository.account == own), False


def has_pins(context: Context) -> bool:
    """Return whether a stack file of the folder names an image in ECR."""
    try:
        return bool(retention.pins(context.root))
    except PaddockError:
        return True
