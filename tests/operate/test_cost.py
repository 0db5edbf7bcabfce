"""Cost of a period, on a stand-in for Cost Explorer whose calls botocore's models check, and one for Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import NoCredentialsError

from paddock.monitoring.metrics.exported import exported
from paddock.operate.cli import cost
from paddock.operate.cost.report import Cost
from paddock.operate.cost.usage import QUERIES
from paddock.operate.sources import interruptions
from paddock.operate.sources.interruptions import Interruption
from paddock.terminal import PRINTED_JSON, BadFlag
from tests.operate.conftest import planned_once
from tests.support.aws_account import DENIED, Account, Answer, Refusal
from tests.support.http_server import Handler, serving

Reported = Callable[..., Cost]
OPERATION = "ce.GetCostAndUsage"
POOL = "paddock-dev-t4"
SPOT, ON_DEMAND = "USW2-SpotUsage:g4dn.xlarge", "USW2-BoxUsage:g4dn.xlarge"


def group(name: str, usage_type: str, usd: float, quantity: float) -> dict[str, Any]:
    amounts = {"UnblendedCost": (usd, "USD"), "UsageQuantity": (quantity, "N/A")}
    metrics = {key: {"Amount": str(amount), "Unit": unit} for key, (amount, unit) in amounts.items()}
    return {"Keys": [f"Name${name}", usage_type], "Metrics": metrics}


def day(*groups: dict[str, Any], token: str = "", estimated: bool = False) -> dict[str, Any]:
    period = {"Start": "2026-11-17", "End": "2026-11-18"}
    answer = {"ResultsByTime": [{"TimePeriod": period, "Groups": list(groups), "Estimated": estimated}]}
    return {**answer, **({"NextPageToken": token} if token else {})}


BILL = day(
    group(POOL, SPOT, 8.0, 40.0),
    group(POOL, ON_DEMAND, 5.26, 10.0),
    group(POOL, "USW2-EBS:VolumeUsage.gp3", 0.5, 6.0),
    group("paddock-dev-system", "USW2-BoxUsage:m7i.large", 20.0, 200.0),
    group("", "USW2-AmazonEKS-Hours:perCluster", 16.8, 168.0),
)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(cost, "plan_graph", planned_once)
    monkeypatch.setenv("PADDOCK_TODAY", "2026-11-24")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def report(project: Path, capsys: pytest.CaptureFixture[str]) -> Reported:
    """Return what reads the report of an account whose Cost Explorer gives an answer."""

    def run(answer: Answer, code: int = 0, **flags: Any) -> Cost:
        account = Account({OPERATION: answer})
        assert cost.run(project, "dev", clients=account.clients, json=PRINTED_JSON, **flags) == code
        return Cost.model_validate_json(capsys.readouterr().out)

    return run


def test_pool_has_its_actual_beside_the_estimate(report: Reported) -> None:
    result = report(BILL)
    (pool,) = result.pools
    assert (pool.actual_usd, pool.node_hours, pool.actual_node_hour) == (13.76, 50.0, 0.2652)
    assert pool.estimate_usd
    assert pool.ratio == pytest.approx(13.76 / pool.estimate_usd, abs=0.001)
    assert (result.rest.actual_usd, result.total.actual_usd, result.bill.usd) == (36.8, 50.56, 50.56)


def test_request_is_of_whole_days_and_the_fleet_tag(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    account = Account({OPERATION: BILL})
    cost.run(project, "dev", days=3, clients=account.clients, json=PRINTED_JSON)
    (asked,) = account.called(OPERATION)
    assert asked["TimePeriod"] == {"Start": "2026-11-21", "End": "2026-11-24"}
    assert asked["Filter"]["Tags"]["Key"] == "paddock:fleet"
    assert json.loads(capsys.readouterr().out)["bill"]["requests_usd"] == 0.01


def test_price_that_is_missing_is_named(project: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Pulumi.prod.yaml").write_text((root / "Pulumi.prod.yaml").read_text())
    cost.run(project, "prod", clients=Account({OPERATION: BILL}).clients, json=PRINTED_JSON)
    result = Cost.model_validate_json(capsys.readouterr().out)
    assert any(pool.estimate_usd is None for pool in result.pools)
    assert any(note.startswith("estimates leave out ") for note in result.notes)


def test_pages_are_added_up_and_their_price_said(report: Reported) -> None:
    def pages(parameters: dict[str, Any]) -> dict[str, Any]:
        if "NextPageToken" in parameters:
            return day(group(POOL, SPOT, 1.0, 5.0), estimated=True)
        return day(group(POOL, SPOT, 2.0, 10.0), token="more")

    bill = report(pages).bill
    assert (bill.usd, bill.requests, bill.requests_usd, bill.estimated) == (3.0, 2, 0.02, True)


def test_untagged_is_unknown_and_never_zero(report: Reported) -> None:
    nothing = report(day())
    assert nothing.bill.usd is None
    assert nothing.bill.fix.startswith("aws ce update-cost-allocation-tags-status ")
    assert nothing.pools[0].actual_usd is None
    nameless = report(day(group("", SPOT, 4.0, 20.0)))
    assert (nameless.bill.usd, nameless.pools[0].actual_usd, nameless.rest.actual_usd) == (4.0, None, None)
    assert "carries Name" in nameless.pools[0].unknown


def test_pool_that_did_not_run_cost_nothing(report: Reported) -> None:
    result = report(day(group("paddock-dev-system", "USW2-BoxUsage:m7i.large", 2.0, 20.0)))
    assert result.pools[0].actual_usd == 0.0


@pytest.mark.parametrize(
    ("refusal", "message", "fix"),
    [
        (DENIED, "denies ce:GetCostAndUsage", "allow ce:GetCostAndUsage"),
        (Refusal("DataUnavailableException"), "no data for these days", "enable Cost Explorer"),
        (Refusal("LimitExceededException"), "throttles", "in a minute"),
        (Refusal("ThrottlingException"), "throttles", "in a minute"),
        (NoCredentialsError(), "no credentials", "aws sso login"),
    ],
)
def test_unreadable_bill_is_said_and_exits_one(report: Reported, refusal: Exception, message: str, fix: str) -> None:
    bill = report(refusal, code=1).bill
    assert message in bill.unknown
    assert fix in bill.fix
    assert bill.permission == ("ce:GetCostAndUsage" if refusal is DENIED else "")


def test_cluster_of_others_has_no_bill_here(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "Pulumi.dev.yaml"
    others = '    cluster: {kubeconfig: ~/.kube/config, version: "1.36"}\n    pools:\n'
    file.write_text(re.sub(r"    cluster:\n.*?    pools:\n", others, file.read_text(), flags=re.DOTALL))
    account = Account({})
    assert cost.run(project, "dev", clients=account.clients, json=PRINTED_JSON) == 0
    result = Cost.model_validate_json(capsys.readouterr().out)
    assert "buys no nodes" in result.bill.unknown
    assert (result.bill.usd, result.pools[0].actual_usd, account.calls) == (None, None, [])


def test_on_demand_hours_of_a_spot_pool_are_a_change(report: Reported) -> None:
    changes = report(BILL).changes
    assert len(changes) <= 3
    assert [change.usd for change in changes] == sorted((change.usd for change in changes), reverse=True)
    (fallback,) = (change for change in changes if "on demand" in change.message)
    assert fallback.message.startswith("10.0 node-hours")
    assert 0 < fallback.usd < 5.26


def test_queries_read_only_exported_metrics() -> None:
    names = {
        name
        for query in QUERIES
        for name in re.findall(r"\b(?:kube|gha|DCGM|paddock)_\w+", f"{query.expression} {query.present}")
    }
    assert len(names) >= 6
    assert names <= set(exported())


class Answers(Handler):
    """A stand-in for Prometheus' API: answers by a piece of the query."""

    url = ""
    by_piece: ClassVar[dict[str, list[tuple[dict[str, str], float]]]] = {}
    text: bytes | None = None

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        rows = next((rows for piece, rows in self.by_piece.items() if piece in query), [])
        result = [{"metric": labels, "value": [0, str(value)]} for labels, value in rows]
        document = {"status": "success", "data": {"resultType": "vector", "result": result}}
        self.send(200, document if self.text is None else self.text)


@pytest.fixture
def server() -> Iterator[type[Answers]]:
    class Own(Answers):
        pass

    with serving(Own) as Own.url:
        yield Own


def test_waste_and_workflows_from_stand_in_of_prometheus(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {
        "> bool 0": [({}, 168.0)],
        "unless on(node)": [({}, 10.0)],
        "clamp_min": [({}, 2.0)],
        '"Pending"': [],
        '"Running"': [({}, 30.0)],
        "kube_node_status_allocatable": [({}, 50.0)],
        "gha_idle_runners": [({"name": "gpu"}, 5.0), ({"name": "of-another-fleet"}, 90.0)],
        "DCGM_FI_DEV_GPU_UTIL": [({"modelName": "Tesla T4"}, 41.25)],
        "_seconds_sum": [
            ({"organization": "acme", "repository": "a", "job_workflow_name": "ci"}, 3.0),
            ({"organization": "acme", "repository": "b", "job_workflow_name": "ci"}, 9.0),
        ],
    }
    result = report(BILL, prometheus=server.url)
    waste = {one.kind: one for one in result.waste}
    assert {kind: one.gpu_hours for kind, one in waste.items()} == {
        "idle runners": 5.0, "empty nodes": 10.0, "stranded": 2.0, "image pull": 0.0, "idle in jobs": None,
        "boot": None, "interrupted": None,
    }  # fmt: skip
    assert waste["empty nodes"].usd == pytest.approx(13.76 / 5, abs=0.01)
    assert [(row.repository, row.share) for row in result.workflows] == [("acme/b", 0.75), ("acme/a", 0.25)]
    assert (result.utilisation[0].percent, result.workflows[0].gpu_percent) == (41.2, None)
    assert (result.jobs, "no metric that joins a job with its GPU" in result.jobs_unknown) == ((), True)


def job_labels(repository: str, workflow: str, scale_set: str = "gpu") -> dict[str, str]:
    ref = f"{repository}/.github/workflows/{workflow}.yml@refs/heads/main"
    return {"repository": repository, "job_workflow_ref": ref, "scale_set": scale_set}


TRAIN, CI, WEB = job_labels("acme/app", "train"), job_labels("acme/app", "ci"), job_labels("acme/web", "ci")
JOBS = {
    # The most special piece of a query first.
    "== 0": [(WEB, 5.92)],
    "/ 100": [(TRAIN, 5.5), (CI, 4.8), (WEB, 0.0)],
    "count by (namespace, pod) (DCGM": [(TRAIN, 11.0), (CI, 6.0), (WEB, 6.0)],
    "paddock_runner_job_info": [
        (TRAIN, 12.0),
        (CI, 6.0),
        (WEB, 6.0),
        (job_labels("acme/web", "mig"), 1.0),
        (job_labels("other/x", "ci", "of-another-fleet"), 99.0),
    ],
    "> bool 0": [({}, 168.0)],
    "_seconds_sum": [({"organization": "acme", "repository": "app", "job_workflow_name": "train"}, 3.0)],
}
PRICE = 13.76 / 50
"""Of a GPU-hour: the pool's bill over 50 hours of instances with one GPU each."""


def test_gpus_by_repository_have_hours_use_and_cost(report: Reported, server: type[Answers]) -> None:
    server.by_piece = JOBS
    result = report(BILL, prometheus=server.url)
    rows = {(row.repository, row.workflow): row for row in result.jobs}
    expected = [("acme/app", "train"), ("acme/app", "ci"), ("acme/web", "ci"), ("acme/web", "mig")]
    assert list(rows) == expected, "jobs of another fleet's runners are not ours"
    train, ci, web, mig = rows.values()
    assert (train.gpu_hours, train.gpu_percent, train.idle_gpu_hours) == (12.0, 50.0, 0.0)
    assert (ci.gpu_percent, web.gpu_percent, web.idle_gpu_hours) == (80.0, 0.0, 5.92)
    assert (mig.gpu_hours, mig.gpu_percent, mig.idle_gpu_hours) == (1.0, None, None), "DCGM says nothing of MIG"
    assert [row.usd for row in result.jobs] == [round(hours * PRICE, 2) for hours in (12, 6, 6, 1)]
    assert {one.kind: one.gpu_hours for one in result.waste}["idle in jobs"] == 5.92
    assert result.workflows[0].gpu_percent == 50.0
    assert result.jobs_unknown == ""


def test_cost_of_a_repository_needs_samples_of_all_days(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {**JOBS, "> bool 0": [({}, 24.0)]}
    result = report(BILL, prometheus=server.url)
    assert [(row.gpu_hours, row.usd) for row in result.jobs[:2]] == [(12.0, None), (6.0, None)]


def test_cost_by_repository_counts_the_gpus_of_each_instance(report: Reported, server: type[Answers]) -> None:
    server.by_piece = JOBS
    four = day(group(POOL, "USW2-SpotUsage:g4dn.12xlarge", 40.0, 10.0))
    assert report(four, prometheus=server.url).jobs[0].usd == 12.0
    strange = day(group(POOL, "USW2-SpotUsage:g99.huge", 40.0, 10.0))
    assert report(strange, prometheus=server.url).jobs[0].usd is None


def test_page_shows_the_table_of_repositories(
    project: Path, capsys: pytest.CaptureFixture[str], server: type[Answers], root: Path
) -> None:
    server.by_piece = JOBS
    assert cost.run(project, "dev", prometheus=server.url, clients=Account({OPERATION: BILL}).clients) == 0
    printed = capsys.readouterr().out
    page = (root / "docs/cost.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(repository .*?)```", page, re.DOTALL)
    assert shown in printed
    assert "no metric that joins" not in printed


def test_interrupted_jobs_of_the_record_are_at_least_so_many(
    report: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    spans = [
        ("2026-11-20T10:00:00+00:00", "2026-11-20T13:00:00+00:00"),
        # Half of it lies before the period.
        ("2026-11-16T23:00:00+00:00", "2026-11-17T01:00:00+00:00"),
        ("2026-11-24T03:00:00+00:00", "2026-11-24T04:00:00+00:00"),
    ]
    jobs = [Interruption(number, "acme/a", "ci", "gpu", 2, *span) for number, span in enumerate(spans)]
    interruptions.keep("dev", jobs)
    lost = report(BILL).waste[-1]
    assert (lost.kind, lost.gpu_hours, lost.at_least, lost.usd) == ("interrupted", 8.0, True, None)
    interruptions.path("dev").write_text("damaged")
    lost = report(BILL).waste[-1]
    assert (lost.gpu_hours, lost.at_least, "no record of interruptions" in lost.unknown) == (None, False, True)


def test_share_of_the_bill_needs_samples_of_all_days(report: Reported, server: type[Answers]) -> None:
    server.by_piece = {
        "> bool 0": [({}, 24.0)],
        "unless on(node)": [({}, 10.0)],
        "sum by (node) (kube_node_status": [({}, 50.0)],
    }
    result = report(BILL, prometheus=server.url)
    empty = next(one for one in result.waste if one.kind == "empty nodes")
    assert (empty.gpu_hours, empty.usd) == (10.0, None)


@pytest.mark.parametrize("body", [b"<html>", b'{"status": "success"}', b"[]"])
def test_answer_of_another_server_leaves_the_bill(report: Reported, server: type[Answers], body: bytes) -> None:
    server.text = body
    result = report(BILL, prometheus=server.url)
    assert result.bill.usd == 50.56
    assert result.metrics is not None
    assert "none of Prometheus' API" in result.metrics.unknown
    assert all(one.gpu_hours is None and one.unknown for one in result.waste)


@pytest.mark.parametrize(
    "flags",
    [{"days": 0}, {"days": 400}, {"prometheus": "file:///etc/passwd"}, {"prometheus": "http://me:secret@host"}],
)
def test_bad_flags_say_what_was_expected(project: Path, flags: dict[str, Any]) -> None:
    with pytest.raises(BadFlag, match=r"(?s)expected: .*\n    fix: ") as caught:
        cost.run(project, "dev", **flags)
    assert "secret" not in str(caught.value)


def test_page_shows_what_the_command_prints(project: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    assert cost.run(project, "dev", clients=Account({OPERATION: BILL}).clients) == 0
    page = (root / "docs/cost.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ \./inv cost --stack dev\n(.*?)```", page, re.DOTALL)
    assert shown == capsys.readouterr().out
