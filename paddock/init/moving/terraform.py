"""Runners of the Terraform module github-aws-runners (philips-labs), as JSON or as the YAML that it decodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock import catalog
from paddock.init.moving import pods
from paddock.init.moving.model import Fleet, Found
from paddock.init.moving.pods import items, mapping

PROGRAM = "terraform-aws-github-runner"
_SOURCE = re.compile(r"github-runner/aws|terraform-aws-github-runner")
_MACHINE = "a node is configured by the pool: docs/configuration.md#pools"
_EPHEMERAL = "every runner takes one job and goes; jobs share a node, one a GPU"
_IDLE = re.compile(r"^\S+ \S+ (\d{1,2})-(\d{1,2}) \* \* (\S+)$")
"""Seconds, minutes, hours, day, month, weekdays: the hours between which runners are idle."""
_KNOWN = {
    "instance_types", "runner_extra_labels", "runners_maximum_count", "runner_group_name", "idle_config",
    "instance_target_capacity_type", "enable_ephemeral_runners", "runner_os", "runner_architecture", "source",
    "version", "enable_organization_runners", "repository_white_list", "github_app", "prefix", "aws_region", "tags",
    "vpc_id", "subnet_ids", "runner_name_prefix",
}  # fmt: skip


def modules(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the module's calls with their arguments: of a `.tf.json`, or of what `terraform show -json` prints."""
    blocks = document.get("module")
    for block in blocks if isinstance(blocks, list) else [blocks]:
        for name, call in mapping(block).items():
            arguments = mapping(call[0] if isinstance(call, list) and call else call)
            if _SOURCE.search(str(arguments.get("source", ""))):
                yield name, arguments
    root = mapping(mapping(document.get("configuration")).get("root_module"))
    for name, call in mapping(root.get("module_calls")).items():
        if _SOURCE.search(str(mapping(call).get("source", ""))):
            expressions = mapping(mapping(call).get("expressions"))
            yield name, {key: _value(mapping(value), document) for key, value in expressions.items()}


@dataclass(frozen=True)
class _Unresolved:
    """An expression that the file does not resolve."""

    text: str


def _value(expression: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """Return the value of an argument: a constant, or that of a variable of the root module."""
    if "constant_value" in expression:
        return expression["constant_value"]
    references = pods.words(expression.get("references"))
    variable = mapping(mapping(document.get("variables")).get(references[0].removeprefix("var."))) if references else {}
    if references and references[0].startswith("var.") and "value" in variable:
        return variable["value"]
    return _Unresolved(", ".join(references) or "an expression")


def configurations(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries of a multi-runner configuration that a YAML file has: one, or several by name."""
    if "runner_config" in document:
        yield "", document
        return
    for name, entry in document.items():
        if "runner_config" in mapping(entry):
            yield str(name), entry


def read(document: Mapping[str, Any], name: str) -> Fleet | None:
    """Return the runners of a document, None where it has none of the module's."""
    found = [_multi(key or name, entry) for key, entry in configurations(document)]
    for key, arguments in modules(document):
        multi = mapping(arguments.get("multi_runner_config"))
        found += [_multi(str(part), mapping(entry)) for part, entry in multi.items()] or [_runner(key, arguments)]
    return Fleet(PROGRAM, tuple(found)) if found else None


def _multi(name: str, entry: Mapping[str, Any]) -> Found:
    found = _runner(name, mapping(entry.get("runner_config")))
    matcher = mapping(entry.get("matcherConfig") or entry.get("matcher_config"))
    matched = matcher.get("labelMatchers")
    sets = [row for row in matched if isinstance(row, list)] if isinstance(matched, list) else []
    if sets:
        pods.labels(found, sets[0], "matcherConfig.labelMatchers")
        for other in sets[1:]:
            found.leave("matcherConfig.labelMatchers", f"{', '.join(map(str, other))}: a runner has one set of labels")
    if "exactMatch" in matcher:
        found.changed("matcherConfig.exactMatch", "GitHub gives a job to a runner that has all labels it asks for")
    return found


def _runner(name: str, given: Mapping[str, Any]) -> Found:
    found, unresolved = Found(name), {}
    for key, value in given.items():
        text = value.text if isinstance(value, _Unresolved) else str(value)
        if isinstance(value, _Unresolved) or "${" in text:
            unresolved[key] = text
            found.leave(key, f"it is {text}, whose value the file does not say")
    given = {key: value for key, value in given.items() if key not in unresolved}
    system, machine = str(given.get("runner_os", "linux")).lower(), str(given.get("runner_architecture", "x64")).lower()
    if system != "linux":
        found.elsewhere = f"runner_os: {system}: a pool has Linux nodes"
    elif machine not in ("x64", "x86_64", "amd64"):
        found.elsewhere = f"runner_architecture: {machine}: pools made here are x64"
    elif "instance_types" in unresolved:
        found.elsewhere = f"instance_types is {unresolved['instance_types']}, whose value the file does not say"
    elif types := pods.words(given.get("instance_types")):
        _machines(found, types)
    pods.labels(found, given.get("runner_extra_labels"), "runner_extra_labels", "self-hosted", "linux", "x64")
    if (most := given.get("runners_maximum_count")) is not None and isinstance(most, int):
        if most > 0:
            found.take("max", most, "runners_maximum_count")
        else:
            found.leave("runners_maximum_count", "a pool has a maximum, since it is paid for")
    capacity = str(given.get("instance_target_capacity_type", "spot"))
    found.capacity = "on-demand" if capacity == "on-demand" else "spot"
    if group := given.get("runner_group_name"):
        found.take("group", str(group), "runner_group_name")
    if not given.get("enable_ephemeral_runners"):
        found.changed("enable_ephemeral_runners", _EPHEMERAL)
    warm = [entry for rule in items(given.get("idle_config")) for entry in _idle(found, mapping(rule))]
    if warm:
        found.take("warm", warm, "idle_config")
    found.region = str(given.get("aws_region") or "")
    if given.get("repository_white_list"):
        found.leave("repository_white_list", "the runner group's repositories at GitHub say who may use the runners")
    found.leave_others(given, _KNOWN, "", _MACHINE)
    return found


def _machines(found: Found, types: list[str]) -> None:
    known = catalog.instances()
    with_gpu = tuple(name for name in types if name in known and known[name].gpu)
    for name in with_gpu:
        if known[name].gpu != known[with_gpu[0]].gpu:
            found.leave("instance_types", f"{name}: another GPU than {with_gpu[0]}, and a pool has one model")
    with_gpu = tuple(name for name in with_gpu if known[name].gpu == known[with_gpu[0]].gpu)
    for name in types:
        if with_gpu and not (name in known and known[name].gpu):
            found.leave("instance_types", f"{name}: {catalog.other_type(name) or 'not a type that the catalogue has'}")
    if with_gpu:
        found.instances = with_gpu
        found.taken["instances"] = "instance_types"
        found.take("gpus", min(known[name].gpu_count for name in with_gpu), "instance_types")
        found.changed("instance_types", "a job gets all GPUs of its node; gpus: 1 lets several jobs share one")


def _idle(found: Found, rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    match, count = _IDLE.match(str(rule.get("cron", ""))), rule.get("idleCount")
    if match is None or not isinstance(count, int):
        found.leave("idle_config", f'"{rule.get("cron")}": only hours of days, such as "* * 9-17 * * 1-5", are taken')
        return []
    begin, end, days = int(match[1]), int(match[2]) + 1, match[3]
    zone = {"time_zone": str(rule["timeZone"])} if rule.get("timeZone") else {}
    zone = {"timeZone": zone["time_zone"]} if zone else {}
    if end > 23:
        found.leave("idle_config", f'"{rule.get("cron")}": hours to midnight are not taken')
        return []
    return [{"at": f"0 {begin} * * {days}", "min": count} | zone, {"at": f"0 {end} * * {days}", "min": 0} | zone]
