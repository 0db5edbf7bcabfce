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
_SOURCE = re.compile(r"(github-runner/aws|terraform-aws-github-runner)(?!.*//?modules/(?!multi-runner|runners\b))")
"""The module and its multi-runner; its other modules, such as that which downloads its functions, make no runners."""
_MACHINE = "a node is configured by the pool: docs/configuration.md#pools"
_EPHEMERAL = "every runner takes one job and goes; jobs share a node, one a GPU"
_IDLE = re.compile(r"^(?:\* )?\* (\d{1,2})(?:-(\d{1,2}))? \* \* (\*|[0-7](?:-[0-7])?)$")
"""Seconds or none, minutes, hours, day, month, weekdays: the hours between which runners are idle."""
_ALWAYS = re.compile(r"^(\* ){4,5}\*$")
_BEGINNINGS = (
    (("delay_webhook", "scale_", "minimum_running", "runner_boot_time", "job_retry", "enable_job_queued", "fifo",
      "redrive_", "priority", "lambda", "webhook", "queue", "pool_", "eventbridge", "runners_lambda", "runners_scale"),
     "the module's functions and queues: GitHub tells ARC's listener of each job, and nothing of them is needed"),
    (("enable_on_demand_failover",), "fallback: on-demand is that"),
    (("block_device", "ebs_"), "pools.NAME.disk; images and jobs are on local NVMe disks where the machine has them"),
    (("ami", "userdata", "enable_userdata", "runner_run_as", "runner_as_root", "enable_runner_binaries"),
     "nodes have EKS's image with the driver, and jobs the runner's image: docs/images.md"),
    (("cloudwatch", "enable_cloudwatch", "runner_log", "logging", "log_", "metrics", "tracing"),
     "monitoring, and cluster.logs: docs/monitoring.md"),
    (("runner_iam", "role_", "instance_profile"), "a role that the workflow takes by OpenID Connect: docs/security.md"),
)  # fmt: skip
"""Reasons for keys that are left out, by how they begin."""
_KNOWN = {
    "instance_types", "runner_extra_labels", "runners_maximum_count", "runner_group_name", "idle_config",
    "instance_target_capacity_type", "enable_ephemeral_runners", "runner_os", "runner_architecture", "source",
    "version", "enable_organization_runners", "repository_white_list", "github_app", "prefix", "aws_region", "tags",
    "vpc_id", "subnet_ids", "runner_name_prefix", "runner_disable_default_labels", "multi_runner_config",
}  # fmt: skip


def modules(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the module's calls with their arguments: of a `.tf.json`, or of what `terraform show -json` prints."""
    blocks = document.get("module")
    for block in blocks if isinstance(blocks, list) else [blocks]:
        for name, call in mapping(block).items():
            arguments = mapping(call[0] if isinstance(call, list) and call else call)
            if _SOURCE.search(str(arguments.get("source", ""))):
                yield name, arguments
    yield from _calls(mapping(mapping(document.get("configuration")).get("root_module")), document.get("variables"))


def _calls(module: Mapping[str, Any], variables: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the calls of a module that `terraform show -json` prints, and of those that it calls."""
    for name, called in mapping(module.get("module_calls")).items():
        call = mapping(called)
        given = {key: _value(mapping(value), variables) for key, value in mapping(call.get("expressions")).items()}
        if _SOURCE.search(str(call.get("source", ""))):
            yield name, given
        else:
            known = {key: {"value": value} for key, value in given.items() if not isinstance(value, _Unresolved)}
            yield from _calls(mapping(call.get("module")), known)


@dataclass(frozen=True)
class _Unresolved:
    """An expression that the file does not resolve."""

    text: str


def _value(expression: Mapping[str, Any], variables: Any) -> Any:
    """Return the value of an argument: a constant, or that of a variable of the module."""
    if "constant_value" in expression:
        return expression["constant_value"]
    references = pods.words(expression.get("references"))
    variable = mapping(mapping(variables).get(references[0].removeprefix("var."))) if references else {}
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
    asked = list(dict.fromkeys(word for row in sets for word in pods.words(row)))
    if asked:
        pods.labels(found, asked, "matcherConfig.labelMatchers", *found.keys.get("labels", ()))
    if len(sets) > 1:
        found.changed(
            "matcherConfig.labelMatchers",
            f"{len(sets)} sets: the runner has the labels of all, and takes a job that asks for some of them",
        )
    elif "exactMatch" in matcher:
        found.changed("matcherConfig.exactMatch", "GitHub gives a job to a runner that has all labels it asks for")
    for at, mapped, known in (("", entry, {"runner_config", "matcherConfig", "matcher_config"}),
                              ("matcherConfig", matcher, {"labelMatchers", "exactMatch"})):  # fmt: skip
        for key in sorted(set(map(str, mapped)) - known):
            found.leave(f"{at}.{key}" if at else key, _reason(key))
    return found


def _reason(key: str) -> str:
    return next((text for starts, text in _BEGINNINGS if key.startswith(starts)), _MACHINE)


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
    elif unknown := next((key for key in ("instance_types", "multi_runner_config") if key in unresolved), ""):
        found.elsewhere = f"{unknown} is {unresolved[unknown]}, whose value the file does not say"
    elif types := pods.words(given.get("instance_types")):
        _machines(found, types)
    by_default = () if given.get("runner_disable_default_labels") else ("self-hosted", "linux", "x64")
    pods.labels(found, given.get("runner_extra_labels"), "runner_extra_labels", *by_default)
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
    if found.capacity == "spot" and not given.get("enable_on_demand_failover_for_errors"):
        found.changed(
            "enable_on_demand_failover_for_errors",
            "fallback: on-demand is written: a job for which there is no spot is paid for on demand",
        )
    warm = [entry for rule in items(given.get("idle_config")) for entry in _idle(found, mapping(rule))]
    begun = [{**entry, "min": 0} for entry in warm if entry["min"]]
    if warm := [entry for entry in warm if entry not in begun]:
        found.take("warm", warm, "idle_config")
    found.region = str(given.get("aws_region") or "")
    if given.get("repository_white_list"):
        found.leave("repository_white_list", "the runner group's repositories at GitHub say who may use the runners")
    for key in sorted(set(map(str, given)) - _KNOWN):
        found.leave(key, _reason(key))
    return found


def _machines(found: Found, types: list[str]) -> None:
    pods.machines(found, types, "instance_types")
    counts = [catalog.instances()[type_].gpu_count for type_ in found.instances]
    if counts:
        found.take("gpus", min(counts), "instance_types")
    if max(counts, default=0) > 1:
        found.changed("instance_types", "a job gets all GPUs of its node; gpus: 1 lets several jobs share one")


def _idle(found: Found, rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    cron, count = str(rule.get("cron", "")), rule.get("idleCount")
    match = _IDLE.match(cron)
    if _ALWAYS.match(cron) and isinstance(count, int):
        found.take("min", max(count, found.keys.get("min", 0)), "idle_config")
        return []
    begin, end = (int(match[1]), int(match[2] or match[1]) + 1) if match else (0, 0)
    if match is None or not isinstance(count, int) or not begin < end <= 24:
        found.leave("idle_config", f'"{cron}": only hours of days, such as "* * 9-17 * * 1-5", are taken')
        return []
    zone = {"timeZone": str(rule["timeZone"])} if rule.get("timeZone") else {}
    last = match[3] if end < 24 else _day_after(match[3])
    return [
        {"at": f"0 {begin} * * {match[3]}", "min": count} | zone,
        {"at": f"0 {end % 24} * * {last}", "min": 0} | zone,
    ]


def _day_after(days: str) -> str:
    """Return the weekdays that follow weekdays, as cron has them."""
    if days == "*":
        return days
    first, _, last = days.partition("-")
    after = sorted({(day + 1) % 7 for day in range(int(first), int(last or first) + 1)})
    whole = len(after) > 1 and after[-1] - after[0] == len(after) - 1
    return f"{after[0]}-{after[-1]}" if whole else ",".join(map(str, after))
