"""Values of ARC's own chart, gha-runner-scale-set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from paddock.init.moving import pods
from paddock.init.moving.model import Fleet, Found
from paddock.init.moving.pods import items, mapping

PROGRAM = "gha-runner-scale-set (ARC)"
_MODES = {"dind": "dind", "kubernetes": "kubernetes-novolume", "kubernetes-novolume": "kubernetes-novolume"}
_KNOWN = {"githubConfigUrl", "githubConfigSecret", "runnerGroup", "runnerScaleSetName", "minRunners", "maxRunners",
          "scaleSetLabels", "runnerScaleSetLabels", "containerMode", "template",
          "controllerServiceAccount"}  # fmt: skip
_POD = {"containers", "initContainers", "volumes", "nodeSelector", "tolerations", "affinity",
        "topologySpreadConstraints", "priorityClassName", "restartPolicy"}  # fmt: skip


_OWN = {"githubConfigUrl", "runnerScaleSetName", "githubConfigSecret", "minRunners", "maxRunners", "containerMode"}
"""Keys of the chart alone, of which values have several, also where --set gives the address."""
_WRAPS = {"spec", "values", "valuesObject", "helm", "source", "sources", "template", "gha-runner-scale-set"}
"""Keys that lead to values and name nothing."""


def find(document: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the values that are anywhere in a document, with their names.

    They stand alone, under the chart's name as a part of another, in the custom resource that the chart makes, and in
    resources of Flux and Argo CD, as a map or as text.
    """
    if isinstance(document, Mapping):
        name = str(mapping(document.get("metadata")).get("name") or name) if "kind" in document else name
        if "githubConfigUrl" in document or len(_OWN & set(document)) > 1:
            yield name, document
            return
        for key, value in document.items():
            yield from find(_loaded(value) if key == "values" else value, name if key in _WRAPS else str(key))
    elif isinstance(document, list):
        for entry in document:
            yield from find(entry, name)


def _loaded(value: Any) -> Any:
    """Return values that are YAML in a text as what they say."""
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except (yaml.YAMLError, RecursionError):
        return None


def read(document: Mapping[str, Any], name: str) -> Fleet | None:
    """Return the runners of a document, None where it has none; `name` is that of the release where none is named."""
    found = [_runner(values, own) for own, values in find(document, name)]
    return Fleet(PROGRAM, tuple(found)) if found else None


def _runner(values: Mapping[str, Any], name: str) -> Found:
    found = Found(str(values.get("runnerScaleSetName") or name), named=True)
    url = str(values.get("githubConfigUrl") or "")
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
    key = "runnerScaleSetLabels" if "runnerScaleSetLabels" in values else "scaleSetLabels"
    if values.get(key):
        pods.labels(found, values[key], key)
    elif "name" not in found.keys and re.fullmatch(r"[^\s,]{1,255}", found.name):
        pods.labels(found, [found.name], "runnerScaleSetName", "self-hosted", "linux", "x64")
    else:
        found.changed("labels", "jobs may ask for self-hosted, linux and x64, too, and for the name")
    pods.resources(found, container.get("resources"), f"{at}.containers.runner.resources")
    pods.nodes(found, spec, at)
    pods.environment(found, container.get("env"), f"{at}.containers.runner.env")
    pods.volumes(found, container.get("volumeMounts"), spec.get("volumes"), None, at)
    _container(found, values, spec, at)
    image = str(container.get("image", ""))
    if image and not image.startswith("ghcr.io/actions/actions-runner:"):
        found.take("image", image, f"{at}.containers.runner.image")
    if values.get("runnerGroup"):
        found.take("group", str(values["runnerGroup"]), "runnerGroup")
    for theirs, ours in (("minRunners", "min"), ("maxRunners", "max")):
        if number := pods.count(values.get(theirs)):
            found.take(ours, number, theirs)
    if pods.count(values.get("maxRunners")) == 0:
        found.changed("maxRunners", "0 stops them; a runner that is in a stack file takes one job at least")
    if "githubConfigSecret" in values:
        found.leave("githubConfigSecret", "the credential is given to the stack again: init.github, or Secrets Manager")
    found.leave_others(container, pods.CONTAINER, f"{at}.containers.runner", "not a part of a stack file")
    found.leave_others(spec, _POD, at, "not a part of a stack file")
    found.leave_others(values, _KNOWN, "", "not a part of a stack file")
    return found


def _container(found: Found, values: Mapping[str, Any], spec: Mapping[str, Any], at: str) -> None:
    """Take the container mode, also where its containers and variables are written out by hand."""
    mode, source = str(mapping(values.get("containerMode")).get("type") or ""), "containerMode.type"
    for kind in ("containers", "initContainers"):
        for other in items(spec.get(kind)):
            name, image = str(other.get("name")), str(other.get("image", ""))
            if name in ("dind", "docker") or "dind" in image.rpartition("/")[2]:
                if mode or name not in ("dind", "docker"):
                    continue
                mode, source = "dind", f"{at}.{kind}.{name}"
            elif name == "runner" and not mode and "ACTIONS_RUNNER_CONTAINER_HOOKS" in str(other.get("env")):
                mode, source = "kubernetes-novolume", f"{at}.{kind}.runner.env"
            elif name not in ("runner", "init-dind-externals"):
                found.leave(
                    f"{at}.{kind}.{name}", "a runner has no other containers: they belong in the image or a step"
                )
    if mode in _MODES:
        found.take("container", _MODES[mode], source)
    if mode == "dind":
        found.changed(source, "jobs are root on their node: remove container if none needs Docker")
    elif mode == "kubernetes":
        found.changed(source, "job containers have pods of their own, without a shared volume")
