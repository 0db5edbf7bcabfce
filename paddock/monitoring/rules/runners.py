"""Rules over runners: jobs that wait, scale sets that fail, listeners that are gone, versions that grow old."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

from paddock.catalog.github import RUNNER_GRACE_DAYS, runner_releases, runner_successor, runners_read, tag_runner
from paddock.fleet import Fleet
from paddock.monitoring.metrics.counters import growth
from paddock.monitoring.rules.alert import Alert, Group

ARC = "arc-systems"
"""Namespace of the controller and of the listeners."""

QUEUE_SECONDS = 1200
"""A GPU node from nothing to its first step takes up to ten minutes; twice that is more than a cold start."""
WARN_DAYS = 9
"""Days before GitHub's limit: time for an image and a rollout."""

_LISTENERS = f'namespace="{ARC}", pod=~".+-listener"'
_RUNNERS = 'namespace=~"arc-runners.*"'
_STARTUP = "gha_job_startup_duration_seconds"

_WAITING = (
    Alert(
        "GpuJobsWaiting",
        "gha_assigned_jobs - gha_running_jobs > 0 and gha_running_jobs < gha_max_runners",
        20,
        "warning",
        "{{ $value }} jobs wait for runners of {{ $labels.name }}, which may have more",
        "kubectl describe pods -n arc-runners",
    ),
    Alert(
        "QueueSlow",
        f"histogram_quantile(0.95, sum by (le, repository) ({growth(f'{_STARTUP}_bucket', '1h')})) > {QUEUE_SECONDS} "
        f"and on(repository) sum by (repository) ({growth(f'{_STARTUP}_count', '1h')}) >= 5",
        10,
        "warning",
        "1 of 20 jobs of {{ $labels.repository }} waits longer than {{ $value | humanizeDuration }} for its runner",
        "compare nodes.max and max of the runners with the jobs an hour; look for a type without capacity",
    ),
    Alert(
        "GpuPodsPending",
        'count by (namespace) ((kube_pod_status_phase{phase="Pending"} == 1) and on(namespace, pod) '
        '(kube_pod_container_resource_requests{resource="nvidia_com_gpu"} > 0) and on(namespace, pod) '
        "(time() - kube_pod_created > 1200)) > 0",
        1,
        "warning",
        "{{ $value }} pods of {{ $labels.namespace }} wait for GPUs longer than 20 minutes",
        "kubectl describe pods -n arc-runners --field-selector status.phase=Pending",
    ),
    Alert(
        "ScaleSetFailing",
        "gha_controller_failed_ephemeral_runners > 0",
        10,
        "warning",
        "{{ $value }} runners of {{ $labels.name }} have failed for good",
        "kubectl describe ephemeralrunners -n arc-runners",
    ),
    # A runner whose pod fails gets another pod of its name.
    Alert(
        "RunnerRestarting",
        f"count by (namespace, pod) (last_over_time(kube_pod_created{{{_RUNNERS}}}[30m])) > 2",
        1,
        "warning",
        "the pod of runner {{ $labels.pod }} fails and is made again",
        "./inv why names the reason; kubectl describe ephemeralrunner -n arc-runners has the failures",
    ),
    # A listener that is made anew has the name of the one before it and another uid; one that restarts has both.
    Alert(
        "ListenerRestarting",
        f"count by (namespace, pod) (last_over_time(kube_pod_created{{{_LISTENERS}}}[15m])) > 3 or "
        f"sum by (namespace, pod) (increase(kube_pod_container_status_restarts_total{{{_LISTENERS}}}[15m])) > 3",
        1,
        "critical",
        "the listener {{ $labels.pod }} starts again and again",
        f"kubectl logs -n {ARC} the pod: most often the App's key, its permission, or two controllers",
    ),
)


def group(fleet: Fleet, runner_version: str) -> Group:
    """Return the rules for the fleet's scale sets. `runner_version` is that of runners whose image names none."""
    listeners = (_listener_absent(runner.scale_set) for runner in fleet.runners.values())
    versions = (alert for version in sorted(_versions(fleet, runner_version)) for alert in version_alerts(version))
    return Group("runners", (*_WAITING, *listeners, *versions))


def examples() -> tuple[Alert, ...]:
    """Return every kind of alert on runners once, for a page that knows no fleet."""
    return (*_WAITING, _listener_absent("SCALE-SET"), *version_alerts(list(runner_releases())[-1]))


def _listener_absent(scale_set: str) -> Alert:
    # Each listener is the only one to export its scale set, so a missing one leaves nothing to compare.
    return Alert(
        "ListenerAbsent",
        f'absent(gha_assigned_jobs{{name="{scale_set}"}})',
        10,
        "critical",
        "{{ $labels.name }} has no listener: GitHub has nobody to give its jobs to",
        f"kubectl get pods -n {ARC}; a set that is Outdated needs a newer runner",
    )


def _versions(fleet: Fleet, default: str) -> set[str]:
    """Return versions of actions/runner that images state; an image that states none is left to its owner."""
    images = {runner.image or fleet.images.runner for runner in fleet.runners.values()}
    stated = {tag_runner(image) if image else default for image in images}
    return {version for version in stated if version}


def version_alerts(version: str) -> Iterator[Alert]:
    """Yield what to say when GitHub's limit for a runner's version comes near and when it is over."""
    if (refused := refused_from(version)) is None:
        return
    age = f'label_replace(vector(time()), "version", "{version}", "", "")'
    fix = "set the newer version in infra/versions.py, build images anew, pulumi up"
    warn = refused - timedelta(days=WARN_DAYS)
    yield Alert(
        "RunnerVersionOld",
        f"{age} > {warn.timestamp():.0f} < {refused.timestamp():.0f}",
        60,
        "warning",
        f"GitHub may give runner {{{{ $labels.version }}}} no more jobs from {refused.date()} on",
        fix,
    )
    yield Alert(
        "RunnerVersionRefused",
        f"{age} >= {refused.timestamp():.0f}",
        60,
        "critical",
        f"GitHub may have given runner {{{{ $labels.version }}}} no more jobs since {refused.date()}",
        fix,
    )


def refused_from(version: str) -> datetime | None:
    """Return the earliest day on which GitHub may refuse a runner; None for a version that nobody knows."""
    released, successor = runner_releases().get(version), runner_successor(version)
    if released is None:
        return None
    # Where no successor is known, one may have followed on the day after the releases were last read.
    followed = successor[1] if successor else max(released, runners_read())
    return datetime.combine(followed + timedelta(days=RUNNER_GRACE_DAYS), time(), UTC)
