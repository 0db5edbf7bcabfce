"""`inv cost --prometheus` against a real Prometheus with a day of samples; AWS's bill is a stand-in."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.operate.cost.command import ShowCost, cost
from paddock.operate.cost.report import Cost, JobUse
from paddock.operate.cost.usage import QUERIES, read
from paddock.operate.sources.prometheus import PrometheusReader
from tests.support import fleets
from tests.support.aws_account import Account, answering
from tests.support.waiting import until

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PROMETHEUS or not PROMTOOL, reason="no prometheus and promtool on PATH"),
]

TODAY = datetime(2026, 11, 24, tzinfo=UTC)
BEGIN = TODAY - timedelta(days=1)
STEP = 60
"""Seconds between samples."""
STEPS_APART = 0.2
"""Hours by which an answer may differ: steps of five minutes at either end of each pod's life."""
Value = Callable[[float], float | None]
"""Value of a series at an hour of the day, None where it has none."""


def between(begin: float, end: float, value: float = 1) -> Value:
    return lambda hour: value if begin <= hour < end else None


def always(value: float) -> Value:
    return between(0, 24, value)


def info(runner: str, repository: str, workflow: str, instance: str = "state") -> str:
    ref = f"{repository}/.github/workflows/{workflow}.yml@refs/heads/main"
    labels = f'namespace="arc-runners",runner="{runner}",scale_set="gpu",repository="{repository}"'
    return f'paddock_runner_job_info{{{labels},job_workflow_ref="{ref}",job_name="a job",instance="{instance}"}}'


def pod(name: str, node: str, begin: float, end: float, pulled: float = 0) -> dict[str, Value]:
    """Return the series of a pod, which kube-state-metrics has for each phase, whether it is that or not."""
    where = f'namespace="arc-runners",pod="{name}"'
    of_gpu = f'{where},container="runner",node="{node}",resource="nvidia_com_gpu",unit="integer"'

    def running(hour: float) -> float | None:
        return float(hour >= pulled) if begin <= hour < end else None

    def pending(hour: float) -> float | None:
        return float(hour < pulled) if begin <= hour < end else None

    return {
        f"kube_pod_container_resource_requests{{{of_gpu}}}": between(begin, end),
        f'kube_pod_status_phase{{{where},phase="Running"}}': running,
        f'kube_pod_status_phase{{{where},phase="Pending"}}': pending,
    }


def util(gpu: str, node: str, begin: float, end: float, value: float, name: str, namespace: str) -> dict[str, Value]:
    of_gpu = f'gpu="{gpu}",UUID="GPU-{gpu}",modelName="Tesla T4",Hostname="{node}"'
    series = f'DCGM_FI_DEV_GPU_UTIL{{{of_gpu},pod="{name}",namespace="{namespace}"}}'
    return {series: between(begin, end, value)}


def allocatable(node: str) -> dict[str, Value]:
    return {f'kube_node_status_allocatable{{node="{node}",resource="nvidia_com_gpu",unit="integer"}}': always(1)}


SERIES: dict[str, Value] = {
    **allocatable("a"),
    **allocatable("b"),
    # Node a: a job of acme/app for six hours, one of acme/web that does nothing for six, then nobody.
    **pod("gpu-r-runner-1", "a", 0, 6),
    info("gpu-r-runner-1", "acme/app", "ci"): between(0, 6),
    info("gpu-r-runner-1", "acme/app", "ci", "another replica"): between(2, 3),
    **util("0", "a", 0, 6, 80, "gpu-r-runner-1", "arc-runners"),
    **pod("gpu-r-runner-2", "a", 6, 12),
    info("gpu-r-runner-2", "acme/web", "ci"): between(6, 12),
    **util("0", "a", 6, 12, 0, "gpu-r-runner-2", "arc-runners"),
    **util("0", "a", 12, 24, 0, "dcgm-exporter-a", "monitoring"),
    # Node b: a job in a pod of its own that is pulled for an hour, then a warm runner without a job.
    **pod("gpu-r-runner-3-workflow", "b", 0, 12, pulled=1),
    info("gpu-r-runner-3", "acme/app", "train"): between(0, 12),
    **util("0", "b", 0, 1, 0, "dcgm-exporter-b", "monitoring"),
    **util("0", "b", 1, 12, 50, "gpu-r-runner-3-workflow", "arc-runners"),
    **pod("gpu-r-runner-4", "b", 12, 24),
    **util("0", "b", 12, 24, 0, "gpu-r-runner-4", "arc-runners"),
    'gha_idle_runners{name="gpu",namespace="arc-runners",organization="acme"}': lambda hour: float(hour >= 12),
}


def openmetrics() -> str:
    lines = []
    for family in sorted({series.partition("{")[0] for series in SERIES}):
        lines.append(f"# TYPE {family} gauge")
        for series, value in SERIES.items():
            if series.partition("{")[0] == family:
                for step in range(24 * 3600 // STEP + 1):
                    at = step * STEP
                    if (now := value(at / 3600)) is not None:
                        lines.append(f"{series} {now} {int(BEGIN.timestamp()) + at}")
    return "\n".join([*lines, "# EOF"]) + "\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "samples.txt").write_text(openmetrics())
    data = folder / "data"
    command = [str(PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", "samples.txt", str(data)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    (folder / "prometheus.yaml").write_text("global: {}\n")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    flags = ["--config.file=prometheus.yaml", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"]
    server = subprocess.Popen(
        [str(PROMETHEUS), *flags, f"--web.listen-address=127.0.0.1:{port}"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _ready(address))
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def report(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cost:
    monkeypatch.setenv("PADDOCK_TODAY", f"{TODAY:%Y-%m-%d}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # Two nodes with one GPU each for a day, 10 dollars.
    group = {
        "Keys": ["Name$paddock-dev-t4", "USW2-SpotUsage:g4dn.xlarge"],
        "Metrics": {
            **{f"{kind}Cost": {"Amount": "10", "Unit": "USD"} for kind in ("Amortized", "NetAmortized", "Unblended")},
            "UsageQuantity": {"Amount": "48", "Unit": "Hrs"},
        },
    }
    period = {"Start": "2026-11-23", "End": "2026-11-24"}
    bill = {"ResultsByTime": [{"TimePeriod": period, "Groups": [group], "Estimated": False}]}
    answering(monkeypatch, Account({"ce.GetCostAndUsage": bill}))
    monkeypatch.setenv("PADDOCK_ROOT", str(fleets.ROOT))
    result = cost(ShowCost(days=1, prometheus=url))
    assert result.exit_code == 0
    return result


def near(hours: float) -> object:
    return pytest.approx(hours, abs=STEPS_APART)


def test_every_query_is_answered(url: str) -> None:
    answered = read(PrometheusReader(url), TODAY.date(), 1)
    assert set(answered.reasons) == {"workflows"}, json.dumps(dict(answered.reasons))
    assert set(answered.answers) == {query.key for query in QUERIES} - {"workflows"}


def test_gpus_by_repository_and_workflow_have_hours_use_and_cost(report: Cost) -> None:
    rows: dict[tuple[str, str], JobUse] = {(row.repository, row.workflow): row for row in report.jobs}
    assert next(iter(rows)) == ("acme/app", "train")
    train, ci, web = rows["acme/app", "train"], rows["acme/app", "ci"], rows["acme/web", "ci"]
    assert (train.gpu_hours, ci.gpu_hours, web.gpu_hours) == (near(12), near(6), near(6))
    assert (train.gpu_percent, ci.gpu_percent, web.gpu_percent) == (50.0, 80.0, 0.0)
    assert (train.idle_gpu_hours, ci.idle_gpu_hours, web.idle_gpu_hours) == (near(0), near(0), near(6))
    assert train.usd == pytest.approx(12 * 10 / 48, abs=0.05)
    assert sum(row.usd or 0 for row in report.jobs) == pytest.approx(5, abs=0.15)
    assert len(rows) == 3, "a runner without a job, and a GPU without a pod, are nobody's"


def test_waste_is_split(report: Cost) -> None:
    waste = {one.kind: one.gpu_hours for one in report.waste}
    assert waste["empty nodes"] == near(12)
    assert waste["idle runners"] == near(12)
    assert waste["image pull"] == near(1)
    assert waste["idle in jobs"] == near(6)
    assert waste["stranded"] == near(0)
    assert (waste["boot"], waste["interrupted"]) == (None, None)
    assert report.metrics is not None
    assert report.metrics.hours == near(24)


def test_mean_of_a_model_is_that_of_all_its_gpus(report: Cost) -> None:
    (model,) = report.utilisation
    assert model.gpu == "Tesla T4"
