"""RunnerDeployments, RunnerSets and Runners of the older controller, and their autoscalers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.init.moving import pods
from paddock.init.moving.model import Fleet, Found, Note
from paddock.init.moving.pods import items, mapping

PROGRAM = "actions-runner-controller (actions.summerwind.dev)"
GROUP = "actions.summerwind.dev/"
_KINDS = ("RunnerDeployment", "RunnerSet", "Runner")
_EPHEMERAL = "every runner takes one job and goes: nothing of a job stays for the next one"
_SCALING = "a runner is started for each job that is assigned, and not by the share of busy ones"
_TAKEN = {
    "labels", "group", "image", "ephemeral", "repository", "organization", "enterprise", "resources", "nodeSelector",
    "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName", "env", "volumes", "volumeMounts",
    "dockerdWithinRunnerContainer", "dockerEnabled", "containerMode", "containers", "volumeClaimTemplates",
    "imagePullPolicy", "workDir", "restartPolicy", "selector", "serviceName", "template", "replicas",
    "effectiveTime", "workVolumeClaimTemplate",
}  # fmt: skip
"""Keys that are read, and those that mean nothing for a runner that lives for a job."""


def read(documents: Sequence[Mapping[str, Any]]) -> Fleet:
    """Return the runners of a file's documents. What is not a runner is named, and no value of it repeated."""
    scalers = {
        (_namespace(document), str(mapping(spec.get("scaleTargetRef")).get("kind") or "RunnerDeployment"),
         str(mapping(spec.get("scaleTargetRef")).get("name"))): spec
        for document in documents
        if document.get("kind") == "HorizontalRunnerAutoscaler" and (spec := mapping(document.get("spec"))) is not None
    }  # fmt: skip
    runners, others = [], []
    names = [_name(document) for document in documents if document.get("kind") in _KINDS]
    for document in documents:
        kind, name = str(document.get("kind")), _name(document)
        if kind in _KINDS and str(document.get("apiVersion", "")).startswith(GROUP):
            scaler = scalers.pop((_namespace(document), kind, name), None)
            whole = f"{_namespace(document)}/{name}" if names.count(name) > 1 else name
            runners.append(_runner(document, kind, whole, scaler))
        elif kind != "HorizontalRunnerAutoscaler":
            others.append(Note("", f"{kind} {name}", "left out", "not a runner; it stays where it is"))
    for _, kind, name in scalers:
        text = f"the {kind} {name} that it scales is not in the file"
        others.append(Note("", "HorizontalRunnerAutoscaler", "left out", text))
    return Fleet(PROGRAM, tuple(runners), tuple(others))


def _name(document: Mapping[str, Any]) -> str:
    return str(mapping(document.get("metadata")).get("name"))


def _namespace(document: Mapping[str, Any]) -> str:
    return str(mapping(document.get("metadata")).get("namespace") or "default")


def _runner(document: Mapping[str, Any], kind: str, name: str, scaler: Mapping[str, Any] | None) -> Found:
    found, outer = Found(name), mapping(document.get("spec"))
    template = mapping(outer.get("template"))
    inner = mapping(template.get("spec"))
    # A RunnerSet has GitHub's keys next to a pod template, a Runner has everything at its top.
    spec: dict[str, Any] = {**outer, **inner} if kind != "RunnerDeployment" else dict(inner)
    container = next((c for c in items(spec.get("containers")) if c.get("name") == "runner"), {})
    spec = {
        **spec,
        **{key: container[key] for key in ("resources", "env", "volumeMounts", "image") if key in container},
    }
    at = "spec" if kind == "Runner" else "spec.template.spec"
    own = "spec" if kind == "RunnerSet" else at
    _place(found, spec, own)
    pods.labels(found, spec.get("labels"), f"{own}.labels", "self-hosted", "linux", "x64")
    pods.resources(found, spec.get("resources"), f"{at}.resources")
    pods.nodes(found, spec, at)
    pods.environment(found, spec.get("env"), f"{at}.env")
    pods.volumes(found, spec.get("volumeMounts"), spec.get("volumes"), outer.get("volumeClaimTemplates"), at)
    _containers(found, spec, own)
    _image(found, spec, at)
    if spec.get("ephemeral") is False:
        found.changed(f"{at}.ephemeral", _EPHEMERAL)
    found.leave_others(spec, _TAKEN, at, "not a part of a stack file")
    found.leave_others(container, pods.CONTAINER, f"{at}.containers.runner", "not a part of a stack file")
    _scale(found, outer, scaler)
    return found


def _place(found: Found, spec: Mapping[str, Any], at: str) -> None:
    for key in ("repository", "organization"):
        if spec.get(key):
            found.place = str(spec[key])
            found.taken["place"] = f"{at}.{key}"
    if spec.get("enterprise"):
        found.place = f"enterprises/{spec['enterprise']}"
    if group := spec.get("group"):
        if spec.get("repository"):
            found.leave(f"{at}.group", "a repository has no runner groups")
        else:
            found.take("group", str(group), f"{at}.group")


def _containers(found: Found, spec: Mapping[str, Any], at: str) -> None:
    if spec.get("containerMode") == "kubernetes":
        found.take("container", "kubernetes-novolume", f"{at}.containerMode")
        found.changed(f"{at}.containerMode", "job containers have pods of their own, without a shared volume")
    elif _true(spec.get("dockerdWithinRunnerContainer")) or _true(spec.get("dockerEnabled", True)):
        within = _true(spec.get("dockerdWithinRunnerContainer"))
        found.take("container", "dind", f"{at}.{'dockerdWithinRunnerContainer' if within else 'dockerEnabled'}")
        by_default = "" if within or "dockerEnabled" in spec else "Docker is there by default; "
        found.changed(f"{at}.docker", f"{by_default}jobs are root on their node: remove container if none needs it")
    for name in ("initContainers", "sidecarContainers"):
        if name in spec:
            found.leave(f"{at}.{name}", "a runner has no other containers: what they do belongs in the image or a step")
    for other in items(spec.get("containers")):
        if other.get("name") not in ("runner", "docker"):
            found.leave(f"{at}.containers.{other.get('name')}", "a runner has no other containers")


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")


def _image(found: Found, spec: Mapping[str, Any], at: str) -> None:
    if spec.get("image"):
        found.leave(
            f"{at}.image",
            f"{spec['image']} is laid out for the older controller; build one with images.build runner, and name it in"
            " images.runner",
        )


def _scale(found: Found, outer: Mapping[str, Any], scaler: Mapping[str, Any] | None) -> None:
    if scaler is None:
        if (replicas := _count(outer.get("replicas"))) is not None:
            found.take("min", replicas, "spec.replicas")
            found.take("max", max(replicas, 1), "spec.replicas")
            found.changed(
                "spec.replicas", "min keeps so many idle runners, whose nodes are paid for; 0 starts them for jobs"
            )
        return
    least, most = _count(scaler.get("minReplicas")), _count(scaler.get("maxReplicas"))
    if most is not None:
        found.take("max", max(most, 1), "maxReplicas")
    if most == 0:
        found.changed("maxReplicas", "0 stops them; a runner that is in a stack file takes one job at least")
    if least:
        found.take("min", least, "minReplicas")
        found.changed("minReplicas", "min counts idle runners, in addition to those with a job")
    for metric in items(scaler.get("metrics")):
        found.changed(f"metrics.{metric.get('type')}", _SCALING)
    if scaler.get("scaleUpTriggers"):
        found.changed("scaleUpTriggers", "no webhook is needed: GitHub tells ARC's listener of each job")
    if delay := scaler.get("scaleDownDelaySecondsAfterScaleOut"):
        found.changed("scaleDownDelaySecondsAfterScaleOut", f"{delay} s: cluster.scaleDownDelay keeps a node")
    warm = [
        entry for override in items(scaler.get("scheduledOverrides")) for entry in _warm(found, override, least or 0)
    ]
    if warm:
        found.take("warm", warm, "scheduledOverrides")
    known = {
        "scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "scaleUpTriggers", "scheduledOverrides",
        "scaleDownDelaySecondsAfterScaleOut", "githubAPICredentialsFrom",
    }  # fmt: skip
    found.leave_others(scaler, known, "", "not a part of a stack file")


def _warm(found: Found, override: Mapping[str, Any], usual: int) -> list[dict[str, Any]]:
    """Return the begin and the end of a repeated override as two entries, in UTC."""
    rule, least = mapping(override.get("recurrenceRule")), _count(override.get("minReplicas"))
    begin, end = _time(override.get("startTime")), _time(override.get("endTime"))
    if least is None or begin is None or end is None:
        found.leave("scheduledOverrides", "it lacks startTime, endTime or minReplicas")
        return []
    frequency = str(rule.get("frequency", ""))
    if frequency not in _CRON:
        found.leave(
            "scheduledOverrides", f"once, from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; warm repeats"
        )
        return []
    if rule.get("untilTime"):
        found.changed("scheduledOverrides.untilTime", "warm has no end: remove it then")
    return [{"at": _CRON[frequency](begin), "min": least}, {"at": _CRON[frequency](end), "min": usual}]


_CRON = {
    "Daily": lambda at: f"{at.minute} {at.hour} * * *",
    "Weekly": lambda at: f"{at.minute} {at.hour} * * {at.isoweekday() % 7}",
    "Monthly": lambda at: f"{at.minute} {at.hour} {at.day} * *",
    "Yearly": lambda at: f"{at.minute} {at.hour} {at.day} {at.month} *",
}


def _time(value: Any) -> datetime | None:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _count(value: Any) -> int | None:
    return pods.count(value)
