"""Values of ARC's own chart, gha-runner-scale-set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from paddock.init.moving import pods
from paddock.init.moving.model import Fleet, Found
from paddock.init.moving.pods import items, mapping

PROGRAM = "gha-runner-scale-set (ARC)"
_MODES = {"dind": "dind", "kubernetes": "kubernetes-novolume", "kubernetes-novolume": "kubernetes-novolume"}
_KNOWN = {"githubConfigUrl", "githubConfigSecret", "runnerGroup", "runnerScaleSetName", "minRunners", "maxRunners",
          "scaleSetLabels", "containerMode", "template", "controllerServiceAccount"}  # fmt: skip
_POD = {"containers", "volumes", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints",
        "priorityClassName", "restartPolicy"}  # fmt: skip


def read(values: Mapping[str, Any], name: str) -> Fleet:
    """Return the runners of a values file; `name` is that of the release where the values name none."""
    found = Found(str(values.get("runnerScaleSetName") or name))
    url = str(values["githubConfigUrl"])
    try:
        found.place = url if urlsplit(url).netloc != "github.com" else urlsplit(url).path.strip("/")
    except ValueError:
        found.elsewhere = f"githubConfigUrl: {url} is not an address"
    if re.fullmatch(r"[a-z]([a-z0-9-]{0,43}[a-z0-9])?", found.name):
        found.take("name", found.name, "runnerScaleSetName" if "runnerScaleSetName" in values else "the release")
    found.taken["place"] = "githubConfigUrl"
    spec = mapping(mapping(values.get("template")).get("spec"))
    container = next((c for c in items(spec.get("containers")) if c.get("name") == "runner"), {})
    at = "template.spec"
    if values.get("scaleSetLabels"):
        pods.labels(found, values["scaleSetLabels"], "scaleSetLabels")
    else:
        found.changed("labels", "jobs may ask for self-hosted, linux and x64, too, and for the name")
    pods.resources(found, container.get("resources"), f"{at}.containers.runner.resources")
    pods.nodes(found, spec, at)
    pods.environment(found, container.get("env"), f"{at}.containers.runner.env")
    pods.volumes(found, container.get("volumeMounts"), spec.get("volumes"), None, at)
    mode = str(mapping(values.get("containerMode")).get("type") or "")
    if mode in _MODES:
        found.take("container", _MODES[mode], "containerMode.type")
        if mode == "kubernetes":
            found.changed("containerMode.type", "job containers have pods of their own, without a shared volume")
    image = str(container.get("image", ""))
    if image and not image.startswith("ghcr.io/actions/actions-runner:"):
        found.take("image", image, f"{at}.containers.runner.image")
    if values.get("runnerGroup"):
        found.take("group", str(values["runnerGroup"]), "runnerGroup")
    for theirs, ours in (("minRunners", "min"), ("maxRunners", "max")):
        if number := pods.count(values.get(theirs)):
            found.take(ours, number, theirs)
    if "githubConfigSecret" in values:
        found.leave("githubConfigSecret", "the credential is given to the stack again: init.github, or Secrets Manager")
    for other in items(spec.get("containers")):
        if other.get("name") not in ("runner", "dind"):
            found.leave(f"{at}.containers.{other.get('name')}", "a runner has no other containers")
    found.leave_others(container, pods.CONTAINER, f"{at}.containers.runner", "not a part of a stack file")
    found.leave_others(spec, _POD, at, "not a part of a stack file")
    found.leave_others(values, _KNOWN, "", "not a part of a stack file")
    return Fleet(PROGRAM, (found,))
